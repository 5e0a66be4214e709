"""Ensemble: the mean of the probabilities of several models with the same vocabularies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.errors import RegardError
from regard.models.contract import Model, State
from regard.ragged import Ragged

Logits = Float[Tensor, "row vocabulary"]


@dataclass(frozen=True, eq=False)
class EnsembleState(State):
    """The state of each member, with the same rows."""

    members: tuple[State, ...]

    def select(self, rows: Int[Tensor, " chosen"]) -> EnsembleState:
        """The chosen rows of every member."""
        return EnsembleState(tuple(state.select(rows) for state in self.members))

    def branch(
        self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None
    ) -> EnsembleState:
        """The chosen rows of every member, sharing its own memory of the source."""
        return EnsembleState(tuple(state.branch(rows, sources) for state in self.members))


class Ensemble(Model):
    """p(next | source, prefix) = mean over members of p, at every step; its logits are log p.

    Members may differ in size and family; only the vocabularies must be the same. They have no
    common vector space, so the output vectors of an ensemble are its logits.

    `reversed_members` generate a target from its end. Their prefixes are other tokens, so they
    take no part in steps: they propose and score whole outputs (inference/both_directions.py).
    """

    def __init__(self, members: Sequence[Model], reversed_members: Sequence[Model] = ()) -> None:
        super().__init__()
        if not members:
            raise RegardError("an ensemble needs at least one model; got none")
        self.members = nn.ModuleList(members)
        self.reversed_members = nn.ModuleList(reversed_members)

    @property
    def sides(self) -> tuple[list[Model], list[Model]]:
        """The members that generate forward, and the reversed ones."""
        both = self.members, self.reversed_members
        return cast(tuple[list[Model], list[Model]], tuple(map(list, both)))

    @property
    def reversed_ensemble(self) -> Ensemble | None:
        """The ensemble of the reversed members, if there are any."""
        return Ensemble(self.sides[1]) if len(self.reversed_members) else None

    def __iter__(self) -> Iterator[Model]:
        return cast(Iterator[Model], iter(self.members))

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The logits of all positions at once."""
        outputs = [member(source, prefix) for member in self]
        return outputs[0].like(mean_probability([one.values for one in outputs]))

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """The vectors themselves: `read` returns logits."""
        return vectors

    def cross_attentions(self) -> list[Attention]:
        """Those of all members."""
        return [attention for member in self for attention in member.cross_attentions()]

    def encode(self, source: Ragged) -> tuple[Any, ...]:
        """The encoded source of each member."""
        return tuple(member.encode(source) for member in self)

    def start(self, memory: tuple[Any, ...]) -> EnsembleState:
        """The state before the first token, of each member."""
        return EnsembleState(
            tuple(member.start(own) for member, own in zip(self, memory, strict=True))
        )

    def step(
        self, tokens: Int[Tensor, " row"], state: EnsembleState
    ) -> tuple[Logits, EnsembleState]:
        """One position in each row of every member."""
        steps = [member.step(tokens, own) for member, own in zip(self, state.members, strict=True)]
        logits = mean_probability([logits for logits, _ in steps])
        return logits, EnsembleState(tuple(after for _, after in steps))


def mean_probability(logits: Sequence[Logits]) -> Logits:
    """log of the mean of the probabilities, in float32: log Σ exp(log pᵢ) − log n."""
    if len({one.shape[-1] for one in logits}) > 1:
        sizes = ", ".join(f"{one.shape[-1]:,}" for one in logits)
        raise RegardError(
            f"the models of an ensemble need one vocabulary; theirs have {sizes} tokens"
        )
    each = torch.stack([one.float().log_softmax(-1) for one in logits])
    return each.logsumexp(0) - math.log(len(logits))
