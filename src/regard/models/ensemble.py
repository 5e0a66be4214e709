"""Ensemble: several models with the same vocabularies answer as one, each with the same say."""

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
    """Where each member stands. Rows mean the same to all."""

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

    Members may be of different sizes and families: all they share are the vocabularies. Their
    vectors have no space in common, so those of an ensemble, before the vocabulary, are its logits
    themselves.
    """

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__()
        if not members:
            raise RegardError("an ensemble needs at least one model; got none")
        self.members = nn.ModuleList(members)

    def __iter__(self) -> Iterator[Model]:
        return cast(Iterator[Model], iter(self.members))

    def read(self, source: Ragged, prefix: Ragged) -> Ragged:
        """The logits of all positions at once."""
        said = [member(source, prefix) for member in self]
        return said[0].like(together([one.values for one in said]))

    def project(self, vectors: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        """What `read` gave: these are logits already."""
        return vectors

    def cross_attentions(self) -> list[Attention]:
        """Those of all members."""
        return [look for member in self for look in member.cross_attentions()]

    def encode(self, source: Ragged) -> tuple[Any, ...]:
        """What each member's decoder will look at."""
        return tuple(member.encode(source) for member in self)

    def start(self, memory: tuple[Any, ...]) -> EnsembleState:
        """Nothing said yet, by any of them."""
        return EnsembleState(
            tuple(member.start(own) for member, own in zip(self, memory, strict=True))
        )

    def step(
        self, tokens: Int[Tensor, " row"], state: EnsembleState
    ) -> tuple[Logits, EnsembleState]:
        """One position in each row of every member."""
        said = [member.step(tokens, own) for member, own in zip(self, state.members, strict=True)]
        return together([logits for logits, _ in said]), EnsembleState(
            tuple(after for _, after in said)
        )


def together(logits: Sequence[Logits]) -> Logits:
    """log of the mean of the probabilities, in float32: log Σ exp(log pᵢ) − log n."""
    if len({one.shape[-1] for one in logits}) > 1:
        sizes = ", ".join(f"{one.shape[-1]:,}" for one in logits)
        raise RegardError(
            f"the models of an ensemble need one vocabulary; theirs have {sizes} tokens"
        )
    each = torch.stack([one.float().log_softmax(-1) for one in logits])
    return each.logsumexp(0) - math.log(len(logits))
