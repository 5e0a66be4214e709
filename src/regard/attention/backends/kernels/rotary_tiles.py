"""Rotary positions for the kernels: cosines and sines are read from the definition, `turn`, by turning unit vectors.

Short sentences turn inside their kernel. Of longer ones queries, which it reads once, turn inside it too; keys, which
every block of queries reads, are turned by a kernel of its own, once, before.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from __future__ import annotations

from functools import lru_cache
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.backends.kernels.launch import Turned, width
from regard.attention.backends.kernels.packed import Packed
from regard.attention.backends.kernels.tiles import read_turned, write_turned_back

ROWS = 64


def waves_of(turn: Any, like: Tensor, longest: int) -> Turned | None:
    """Cosines and sines of the first positions, for a kernel that turns pairs; None where not all dims make pairs."""
    dim = like.shape[2]
    if getattr(turn, "turned", 0) != dim or width(dim) != dim or dim < 32:
        return None
    # Few lengths, so that none is ever dropped: recorded steps read them for ever.
    return _waves(turn, dim, like.dtype, like.device, max(ROWS, 1 << (longest - 1).bit_length()))


@lru_cache(maxsize=512)  # every layer and every step asks for the same
def _waves(turn: Any, dim: int, dtype: torch.dtype, device: torch.device, longest: int) -> Turned:
    steps = (1, dim // 2) if turn.pairs == "halves" else (2, 1)
    first = torch.arange(dim // 2, device=device) * steps[0]
    unit = torch.zeros(dim, device=device, dtype=dtype).index_fill_(0, first, 1)
    turned = turn.turn(unit.expand(longest, dim), torch.arange(longest, device=device))
    return Turned((turned[:, first].contiguous(), turned[:, first + steps[1]].contiguous()), steps)


def turned_inside(turn: Any, side: Packed, first: int) -> Turned | None:
    """Waves for blocks of rows, the first of each sequence standing at `first`."""
    waves = waves_of(turn, side.rows, first + side.longest)
    return None if waves is None else waves.since(first)


def turned_apart(turn: Any, side: Packed, first: int) -> Packed:
    """Rows turned before another kernel sees them, the first of each sequence standing at `first`."""
    waves = turned_inside(turn, side, first)
    if waves is not None:
        return side._replace(rows=Turning.apply(side.rows, side, waves))
    token = torch.arange(len(side.rows), device=side.rows.device)
    row = torch.searchsorted(side.starts[: len(side.lengths)].contiguous(), token, right=True) - 1
    return side._replace(rows=turn.turn(side.rows, (token - side.starts[row] + first)[:, None]))


class Turning(torch.autograd.Function):
    """Rows turned by their positions; gradients turned back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, side: Packed, waves: Turned) -> Tensor:
        ctx.given = side._replace(rows=rows), waves
        return turned(rows, *ctx.given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return turned(gradients[0].contiguous(), *ctx.given, back=True), None, None


def turned(rows: Tensor, side: Packed, waves: Turned, *, back: bool = False) -> Tensor:
    """Rows (or their gradients, back) turned by the positions they have on this side."""
    _, heads, dim = rows.shape
    out = side.room(heads, dim)
    turn_rows[(-(-side.longest // ROWS), heads, len(side.lengths))](
        rows, out, *waves.waves, side.starts, side.lengths, rows.stride(0), rows.stride(1), heads * dim,
        DIM=dim, ROWS=ROWS, STEP=waves.steps[0], GAP=waves.steps[1], BACK=back, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
@no_type_check
def turn_rows(
    X, Y, cos, sin, starts, lengths, time, head_step, out_time,
    DIM: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """A block of rows of one head, turned forwards or back."""
    head, sequence = tl.program_id(1), tl.program_id(2)
    HALF: tl.constexpr = DIM // 2
    row, rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.load(lengths + sequence)
    start = tl.load(starts + sequence)
    x, y = X + start * time + head * head_step, Y + start * out_time + head * DIM
    inside = (row < rows)[:, None]
    place = row[:, None] * time + tl.arange(0, HALF)[None, :] * STEP
    if BACK:
        one, other = tl.load(x + place, mask=inside), tl.load(x + place + GAP, mask=inside)
        write_turned_back(y, one, other, row, rows, out_time, cos, sin, HALF, STEP, GAP)
    else:
        one, other = read_turned(x, row, rows, time, cos, sin, HALF, STEP, GAP)
        place = row[:, None] * out_time + tl.arange(0, HALF)[None, :] * STEP
        tl.store(y + place, one, mask=inside)
        tl.store(y + place + GAP, other, mask=inside)
