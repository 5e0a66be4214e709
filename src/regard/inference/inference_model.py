"""Models that are searched in place of another, and the simplest: Uncached recomputes every step.

Uncached decoding is slow, and correct where a cached step is not: hooks may be attached to modules
that a step bypasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Attention
from regard.models.contract import Model, State, eval_mode
from regard.ragged import Ragged

M = TypeVar("M", bound=Model)


class InferenceModel(Model, Generic[M]):
    """Has its own `encode`, `start` and `step`; teacher-forced passes are the original's."""

    original: M

    def __init__(self, original: M) -> None:
        super().__init__()
        self.original = original

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The original's."""
        return self.original.read(source, prefix)

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """The original's."""
        return self.original.project(vectors)

    def cross_attentions(self) -> list[Attention]:
        """The original's."""
        return self.original.cross_attentions()


@dataclass(frozen=True, eq=False)
class PrefixState(State):
    """The source and the prefix of each row."""

    sources: tuple[Tensor, ...]
    tokens: Int[Tensor, "row time"]

    def select(self, rows: Int[Tensor, " chosen"]) -> PrefixState:
        """The chosen rows, each with its source."""
        return PrefixState(tuple(self.sources[row] for row in rows.tolist()), self.tokens[rows])

    def branch(
        self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None
    ) -> PrefixState:
        """The chosen rows; every row holds its own source."""
        return self.select(rows)


class Uncached(InferenceModel[Model]):
    """A model that recomputes all positions at every step."""

    def encode(self, source: Ragged) -> Ragged:
        """The source itself, which is encoded again at every step."""
        return source

    def start(self, memory: Ragged) -> PrefixState:
        """The empty prefix."""
        empty = torch.empty(len(memory), 0, dtype=torch.long, device=memory.values.device)
        return PrefixState(tuple(memory.unbind()), empty)

    def step(
        self, tokens: Int[Tensor, " row"], state: PrefixState
    ) -> tuple[Float[Tensor, "row vocabulary"], PrefixState]:
        """One more position in each row."""
        prefix = torch.cat([state.tokens, tokens[:, None].to(state.tokens.device)], 1)
        with eval_mode(self.original):
            logits = self.original(Ragged.of(state.sources), Ragged.of(prefix.unbind()))
        return logits.values.unflatten(0, prefix.shape)[:, -1], PrefixState(state.sources, prefix)
