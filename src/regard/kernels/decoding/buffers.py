"""What the kernels of a decoder's step read and write: clocks, norms, turns, and the books of a search.

All of it lies on the device and never moves, so that a captured graph stays true. Rows come in slots, one source each,
with as many beams beside each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Clock(NamedTuple):
    """For each slot: how many tokens it has said, whether it is going, and how long its source is. At `most` tokens it
    may only end, before `least` it may not."""

    time: Tensor
    going: Tensor
    most: Tensor
    least: Tensor
    length: Tensor


class Norm(NamedTuple):
    """LayerNorm, or RMSNorm where there is no bias; `before` a sublayer, or after its sum."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    before: bool


class Turns(NamedTuple):
    """x turned at position p is x · cos[p] + x[partner] · sin[p]."""

    cos: Tensor
    sin: Tensor
    partner: Tensor

    @classmethod
    def of(cls, turn: Any, dim: int, room: int, device: torch.device) -> Turns:
        """Read from the definition, by turning unit vectors; what does not turn is its own partner."""
        half, halves = turn.turned // 2, turn.pairs == "halves"
        first = torch.arange(half, device=device) * (1 if halves else 2)
        second = first + (half if halves else 1)
        unit = torch.zeros(dim, device=device).index_fill_(0, first, 1)
        turned = turn.turn(unit.expand(room, dim), torch.arange(room, device=device))
        cos, sin = torch.ones(room, dim, device=device), torch.zeros(room, dim, device=device)
        cos[:, first] = cos[:, second] = turned[:, first]
        sin[:, second], sin[:, first] = turned[:, second], -turned[:, second]
        partner = torch.arange(dim, device=device)
        partner[first], partner[second] = second, first
        return cls(cos, sin, partner.int())


class Walked(NamedTuple):
    """The books of greedy search: the token that each slot says next, what it said (slot, time) and how likely that
    was, and by how little it was decided."""

    tokens: Tensor
    said: Tensor
    logps: Tensor
    margin: Tensor


class Beamed(NamedTuple):
    """The books of beam search. `tokens` and `scores` are the beams'. `said`, `parents` and `logps` (slot, time, beam)
    tell what each beam said at each step and which beam it came from; `ends`, `enders` and `end_logps` the same of the
    ends that counted (−∞: none). `top` are the scores of a slot's best answers. `ancestors` (2, row, time) tells which
    row holds each position of a beam's past, at even and at odd times; `penalties` what a score of each length is
    divided by."""

    tokens: Tensor
    scores: Tensor
    said: Tensor
    parents: Tensor
    logps: Tensor
    ends: Tensor
    enders: Tensor
    end_logps: Tensor
    top: Tensor
    margin: Tensor
    ancestors: Tensor
    penalties: Tensor
