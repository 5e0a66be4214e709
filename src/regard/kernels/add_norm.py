"""Join: x + dropout(y) and the norm of it, in one pass forward and one back.

Dropout draws no numbers: whether one is kept is a hash of a seed and its place, computed again on the way back.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard import kernels
from regard.kernels.column_sum import columns

NUMBERS = 2048  # of a tile: as many rows as that makes
PROGRAMS = 132 * 3  # that add up the gradients of the norm's weights


@triton.jit
@no_type_check
def mixed(h):
    """A good mixing of 32 bits: two multiplications, three shifts."""
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
@no_type_check
def scales(Seed, place, least, scale):
    """What the number at each place is multiplied by: 0 or the scale."""
    seed = tl.load(Seed)
    low, high = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    drawn = mixed(mixed(place.to(tl.uint32) ^ low) + high)
    return tl.where((drawn >> 1).to(tl.int32) >= least, scale, 0.0)


@triton.jit
@no_type_check
def join_forward(
    X, Y, Weight, Bias, Seed, Total, Normed, Stats, rows, least, scale, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr, DROP: tl.constexpr,
    CENTRE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """Some rows. CENTRE: LayerNorm, else RMSNorm. Stats keep each row's mean and 1 / deviation."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    place = row[:, None] * WIDTH + column[None, :]
    x = tl.load(X + place, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        y = tl.load(Y + place, mask=inside, other=0.0).to(tl.float32)
        if DROP:
            y *= scales(Seed, place, least, scale)
        x += y
        tl.store(Total + place, x, mask=inside)
    centre = tl.zeros([ROWS], tl.float32)
    if CENTRE:
        centre = tl.sum(x, 1) / WIDTH
    away = tl.where(inside, x - centre[:, None], 0.0)
    sharp = 1 / tl.sqrt_rn(tl.sum(away * away, 1) / WIDTH + eps)
    tl.store(Stats + row, centre, mask=row < rows)
    tl.store(Stats + rows + row, sharp, mask=row < rows)
    weight = tl.load(Weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    out = away * sharp[:, None] * weight[None, :]
    if SHIFT:
        out += tl.load(Bias + column, mask=column < WIDTH, other=0.0).to(tl.float32)[None, :]
    tl.store(Normed + place, out, mask=inside)


@triton.jit
@no_type_check
def join_backward(
    X, Weight, Seed, Stats, dTotal, dNormed, dX, dY, dWeights, rows, least, scale,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr, DROP: tl.constexpr,
    CENTRE: tl.constexpr, SHIFT: tl.constexpr, THROUGH: tl.constexpr,
):  # fmt: skip
    """Every so manieth tile of rows; sums for weight and bias are kept on the way. THROUGH: the sum was used too."""
    column = tl.arange(0, BLOCK)
    weight = tl.load(Weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    d_weight, d_bias = tl.zeros([ROWS, BLOCK], tl.float32), tl.zeros([ROWS, BLOCK], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
        place = row[:, None] * WIDTH + column[None, :]
        x = tl.load(X + place, mask=inside, other=0.0).to(tl.float32)
        d_out = tl.load(dNormed + place, mask=inside, other=0.0).to(tl.float32)
        centre = tl.load(Stats + row, mask=row < rows, other=0.0)
        sharp = tl.load(Stats + rows + row, mask=row < rows, other=0.0)
        unit = tl.where(inside, (x - centre[:, None]) * sharp[:, None], 0.0)
        d_weight += d_out * unit
        if SHIFT:
            d_bias += d_out
        d_unit = d_out * weight[None, :]
        d_x = d_unit - unit * (tl.sum(d_unit * unit, 1) / WIDTH)[:, None]
        if CENTRE:
            d_x -= (tl.sum(d_unit, 1) / WIDTH)[:, None]
        d_x *= sharp[:, None]
        if THROUGH:
            d_x += tl.load(dTotal + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(dX + place, d_x, mask=inside)
        if ADD:
            if DROP:
                d_x *= scales(Seed, place, least, scale)
            tl.store(dY + place, d_x, mask=inside)
    partial = dWeights + tl.program_id(0) * ((1 + SHIFT) * WIDTH) + column
    tl.store(partial, tl.sum(d_weight, 0), mask=column < WIDTH)
    if SHIFT:
        tl.store(partial + WIDTH, tl.sum(d_bias, 0), mask=column < WIDTH)


class Join(torch.autograd.Function):
    """(x + dropout(y), its norm); without y, (x, its norm)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor | None,
        eps: float, share: float, centre: bool, dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ctx.set_materialize_grads(False)
        rows, width = x.shape
        x, y = x.contiguous(), None if y is None else y.contiguous()
        drop = share > 0 and y is not None
        seed = torch.empty(1, dtype=torch.int64, device=x.device).random_() if drop else x
        total = x if y is None else torch.empty_like(x)
        normed = torch.empty_like(x, dtype=dtype)
        stats = torch.empty(2, rows, dtype=torch.float32, device=x.device)
        ctx.told = told(width, y is not None, drop, centre)
        ctx.chance = round(share * 2**31), 1 / (1 - share)
        ctx.kinds = None if y is None else y.dtype, None if bias is None else bias.dtype
        join_forward[(triton.cdiv(rows, ctx.told["ROWS"]),)](
            x, x if y is None else y, weight, weight if bias is None else bias, seed, total, normed, stats, rows,
            *ctx.chance, eps, SHIFT=bias is not None, **ctx.told,
        )  # fmt: skip
        ctx.save_for_backward(total, weight, seed, stats)
        return total, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight, seed, stats = ctx.saved_tensors
        d_total, d_normed = gradients
        rows, width = total.shape
        of_y, of_bias = ctx.kinds
        if d_normed is None:
            d_normed = torch.zeros_like(total)
        d_x = torch.empty_like(total)
        d_y = d_x if of_y is None else torch.empty_like(total, dtype=of_y)
        programs = min(PROGRAMS, max(1, triton.cdiv(rows, ctx.told["ROWS"])))
        sums = torch.empty(programs, 1 + (of_bias is not None), width, dtype=torch.float32, device=total.device)
        join_backward[(programs,)](
            total, weight, seed, stats, total if d_total is None else d_total.contiguous(), d_normed.contiguous(),
            d_x, d_y, sums, rows, *ctx.chance, SHIFT=of_bias is not None, THROUGH=d_total is not None, **ctx.told,
        )  # fmt: skip
        d_weight, *rest = columns(sums.flatten(1)).split(width)
        shift = None if of_bias is None else rest[0].to(of_bias)
        return d_x, None if of_y is None else d_y, d_weight.to(weight.dtype), shift, None, None, None, None


def told(width: int, add: bool, drop: bool, centre: bool) -> dict[str, Any]:
    """What forward and backward are both told."""
    size = kernels.width(width)
    rows = max(1, NUMBERS // size)
    warps = 4 if size <= 2048 else 8
    return dict(WIDTH=width, BLOCK=size, ROWS=rows, ADD=add, DROP=drop, CENTRE=centre, num_warps=warps)  # noqa: C408


def join(
    x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor | None, *,
    eps: float, share: float, centre: bool, dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of a stream and its latest addition, and that sum normed, in `dtype`."""
    return Join.apply(x, y, weight, bias, eps, share, centre, dtype)
