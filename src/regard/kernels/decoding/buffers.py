"""The operations of a decoding step as a Protocol, and the buffers that they read and write.

Buffers stay at fixed device addresses, so that captured CUDA graphs remain valid. Rows are grouped
in slots: one source per slot, with `beams` rows each.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class SlotState(NamedTuple):
    """Per slot: tokens generated so far (`time`), whether it is active, its length limits, and its
    source length. At `max_length` tokens only the end is allowed, before `min_length` it is not."""

    time: Tensor
    active: Tensor
    max_length: Tensor
    min_length: Tensor
    source_length: Tensor


class NormWeights(NamedTuple):
    """LayerNorm, or RMSNorm without a bias; `before` a sublayer (pre-norm) or after its sum."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    before: bool


class RotaryTable(NamedTuple):
    """x rotated at position p is x · cos[p] + x[partner] · sin[p]."""

    cos: Tensor
    sin: Tensor
    partner: Tensor

    @classmethod
    def of(cls, rotation: Any, dim: int, capacity: int, device: torch.device) -> RotaryTable:
        """Built by rotating unit vectors; dims that are not rotated are their own partners."""
        half, halves = rotation.rotated_dims // 2, rotation.pairs == "halves"
        first = torch.arange(half, device=device) * (1 if halves else 2)
        second = first + (half if halves else 1)
        unit = torch.zeros(dim, device=device).index_fill_(0, first, 1)
        rotated = rotation.rotate(unit.expand(capacity, dim), torch.arange(capacity, device=device))
        cos = torch.ones(capacity, dim, device=device)
        sin = torch.zeros(capacity, dim, device=device)
        cos[:, first] = cos[:, second] = rotated[:, first]
        sin[:, second], sin[:, first] = rotated[:, second], -rotated[:, second]
        partner = torch.arange(dim, device=device)
        partner[first], partner[second] = second, first
        return cls(cos, sin, partner.int())


class GreedyBuffers(NamedTuple):
    """Greedy search: each slot's next token, its history and log-probabilities (slot, time), and
    the smallest margin by which a token was chosen."""

    tokens: Tensor
    history: Tensor
    logps: Tensor
    margin: Tensor


class BeamBuffers(NamedTuple):
    """Beam search.

    `tokens` and `scores` are those of the beams. `history`, `parents` and `logps` (slot, time,
    beam) are the token of each beam at each step, its parent beam and its log-probability; `ends`,
    `enders` and `end_logps` are the same for accepted ends (−∞: none). `top` are the scores of a
    slot's best hypotheses. `ancestors` (2, row, time) is the row that stores each past position of
    a beam, at even and odd times. `penalties` are the divisors of scores by length.
    """

    tokens: Tensor
    scores: Tensor
    history: Tensor
    parents: Tensor
    logps: Tensor
    ends: Tensor
    enders: Tensor
    end_logps: Tensor
    top: Tensor
    margin: Tensor
    ancestors: Tensor
    penalties: Tensor


class DecodingKernels(Protocol):
    """The operations of a decoding step. `plain_operations` defines them in torch; `operations`
    are the kernels."""

    def embed(
        self,
        tokens: Tensor,
        table: Tensor,
        positions: Tensor | None,
        time: Tensor,
        norm: NormWeights | None,
        /,
    ) -> tuple[Tensor, Tensor]: ...

    def linear(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, /, *, relu: bool = False
    ) -> Tensor: ...

    def logits(self, x: Tensor, weight: Tensor, /) -> Tensor: ...

    def linear_add_norm(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        norm: NormWeights | None,
        /,
    ) -> Tensor: ...

    def swiglu(self, inner: Tensor, /) -> Tensor: ...

    def cached_attention(
        self,
        qkv: Tensor,
        past: Tensor,
        state: SlotState,
        ancestors: Tensor | None,
        rotation: RotaryTable | None,
        bias_table: Tensor | None,
        /,
    ) -> Tensor: ...

    def cross_attention(self, queries: Tensor, memory: Tensor, state: SlotState, /) -> Tensor: ...

    def greedy_step(
        self, logits: Tensor, state: SlotState, buffers: GreedyBuffers, end: int, /
    ) -> None: ...

    def beam_step(
        self, logits: Tensor, state: SlotState, buffers: BeamBuffers, end: int, /
    ) -> None: ...
