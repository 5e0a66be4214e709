"""Whole: a model that is searched by whole passes over all that was said so far.

Slow, and right where a step would not be: hooks hang on parts that training calls and a step goes around.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.inference.inference_model import StandIn
from regard.models.contract import Model, State
from regard.models.eval_mode import undisturbed
from regard.ragged import Ragged


@dataclass(frozen=True, eq=False)
class Said(State):
    """The source of each row, and what was said in it."""

    sources: tuple[Tensor, ...]
    tokens: Int[Tensor, "row time"]

    def select(self, rows: Int[Tensor, " chosen"]) -> Said:
        """The chosen rows, each with its source."""
        return Said(tuple(self.sources[row] for row in rows.tolist()), self.tokens[rows])

    def branch(self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None) -> Said:
        """The same: a source is held by every row."""
        return self.select(rows)


class Whole(StandIn[Model]):
    """Another model, asked for all positions at every step."""

    def encode(self, source: Ragged) -> Ragged:
        """The source itself: it is read anew at every step."""
        return source

    def start(self, memory: Ragged) -> Said:
        """Nothing said yet."""
        nothing = torch.empty(len(memory), 0, dtype=torch.long, device=memory.values.device)
        return Said(tuple(memory.unbind()), nothing)

    def step(self, tokens: Int[Tensor, " row"], state: Said) -> tuple[Float[Tensor, "row vocabulary"], Said]:
        """One more position in each row."""
        said = torch.cat([state.tokens, tokens[:, None].to(state.tokens.device)], 1)
        with undisturbed(self.original):
            logits = self.original(Ragged.of(state.sources), Ragged.of(said.unbind()))
        return logits.values.unflatten(0, said.shape)[:, -1], Said(state.sources, said)
