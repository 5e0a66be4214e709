"""Hypothesis: an answer in ids, with the model's log-probability of each of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged

CLOSE = 1e-4  # log-probabilities nearer than this may change places with the company a row keeps: 32-bit sums differ


@dataclass(frozen=True)
class Hypothesis:
    """`ids` without begin and end; `logps` one for each of them and one for the end. `score` is what it was ranked by:
    without rules that change numbers, the sum of `logps` over the length penalty."""

    ids: list[int]
    logps: list[float]
    score: float

    @property
    def logp(self) -> float:
        """log p(target | source), the end included."""
        return sum(self.logps)


@dataclass(frozen=True)
class Found:
    """What a search found for one source, the best first, and by how little it was decided (in log-probability)."""

    hypotheses: Sequence[Hypothesis]
    margin: float

    @property
    def close(self) -> bool:
        """Whether rounding could have decided it."""
        return self.margin < CLOSE


@runtime_checkable
class Search(Protocol):
    """A way from a model to hypotheses. `limits`: the most tokens each answer may have, not counting the end."""

    def __call__(self, model: Model, source: Ragged, limits: Int[Tensor, " source"]) -> list[Found]: ...
