"""Hypothesis: an output in ids, with the model's log-probability of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged

NEAR_TIE = 1e-4  # differences below this may depend on the batch: float32 sums differ


@dataclass(frozen=True)
class Hypothesis:
    """`ids` without BEGIN and END; `logps`, one per id and one for END; and the `score` it is
    ranked by: the sum of `logps` over the length penalty, unless constraints change it."""

    ids: list[int]
    logps: list[float]
    score: float

    @property
    def logp(self) -> float:
        """log p(target | source), END included."""
        return sum(self.logps)


@dataclass(frozen=True)
class SearchResult:
    """The hypotheses of one source, best first, and the smallest margin of any decision."""

    hypotheses: Sequence[Hypothesis]
    margin: float

    @property
    def is_close(self) -> bool:
        """Whether rounding could have changed the result."""
        return self.margin < NEAR_TIE


@runtime_checkable
class Search(Protocol):
    """A search algorithm. `limits` is the maximum output length of each source, without END."""

    def __call__(
        self, model: Model, source: Ragged, limits: Int[Tensor, " source"]
    ) -> list[SearchResult]: ...
