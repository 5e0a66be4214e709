"""Uncached decoding: every step is a full teacher-forced pass over the prefix.

Slow, and correct where a cached step is not: hooks may be attached to modules that a step bypasses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.inference.inference_model import InferenceModel
from regard.models.contract import Model, State
from regard.models.eval_mode import eval_mode
from regard.ragged import Ragged


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
