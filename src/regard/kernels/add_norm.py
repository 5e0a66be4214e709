"""add_norm: x + dropout(y) and its LayerNorm or RMSNorm, in one pass forward and one back.

Dropout stores no random numbers: a hash of a seed and the index decides, in both passes.
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
from regard.kernels.column_sum import column_sum

TILE_ELEMENTS = 2048  # per tile; determines its rows
PROGRAMS = 132 * 3  # programs that sum the gradients of the norm's weights


@triton.jit
@no_type_check
def mix_bits(h):
    """A 32-bit hash: two multiplications, three shifts."""
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
@no_type_check
def dropout_scales(Seed, index, threshold, scale):
    """The dropout factor of each element: 0 or the scale."""
    seed = tl.load(Seed)
    low, high = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    random = mix_bits(mix_bits(index.to(tl.uint32) ^ low) + high)
    return tl.where((random >> 1).to(tl.int32) >= threshold, scale, 0.0)


@triton.jit
@no_type_check
def add_norm_forward(
    X, Y, Weight, Bias, Seed, Total, Normed, Stats, rows, threshold, scale, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr,
    DROP: tl.constexpr, CENTRE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """A block of rows. CENTRE: LayerNorm, else RMSNorm. Stats: each row's mean and 1 / std."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    index = row[:, None] * WIDTH + column[None, :]
    x = tl.load(X + index, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        y = tl.load(Y + index, mask=inside, other=0.0).to(tl.float32)
        if DROP:
            y *= dropout_scales(Seed, index, threshold, scale)
        x += y
        tl.store(Total + index, x, mask=inside)
    centre = tl.zeros([ROWS], tl.float32)
    if CENTRE:
        centre = tl.sum(x, 1) / WIDTH
    centred = tl.where(inside, x - centre[:, None], 0.0)
    inverse_std = 1 / tl.sqrt_rn(tl.sum(centred * centred, 1) / WIDTH + eps)
    tl.store(Stats + row, centre, mask=row < rows)
    tl.store(Stats + rows + row, inverse_std, mask=row < rows)
    weight = tl.load(Weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    out = centred * inverse_std[:, None] * weight[None, :]
    if SHIFT:
        out += tl.load(Bias + column, mask=column < WIDTH, other=0.0).to(tl.float32)[None, :]
    tl.store(Normed + index, out, mask=inside)


@triton.jit
@no_type_check
def add_norm_backward(
    X, Weight, Seed, Stats, dTotal, dNormed, dX, dY, dWeights, rows, threshold, scale,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr,
    DROP: tl.constexpr, CENTRE: tl.constexpr, SHIFT: tl.constexpr, SUM_GRADIENT: tl.constexpr,
):  # fmt: skip
    """Tiles of rows with a stride; also sums d_weight and d_bias.

    SUM_GRADIENT: the sum itself has a gradient, too.
    """
    column = tl.arange(0, BLOCK)
    weight = tl.load(Weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    d_weight, d_bias = tl.zeros([ROWS, BLOCK], tl.float32), tl.zeros([ROWS, BLOCK], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
        index = row[:, None] * WIDTH + column[None, :]
        x = tl.load(X + index, mask=inside, other=0.0).to(tl.float32)
        d_out = tl.load(dNormed + index, mask=inside, other=0.0).to(tl.float32)
        centre = tl.load(Stats + row, mask=row < rows, other=0.0)
        inverse_std = tl.load(Stats + rows + row, mask=row < rows, other=0.0)
        normalised = tl.where(inside, (x - centre[:, None]) * inverse_std[:, None], 0.0)
        d_weight += d_out * normalised
        if SHIFT:
            d_bias += d_out
        d_normalised = d_out * weight[None, :]
        d_x = d_normalised - normalised * (tl.sum(d_normalised * normalised, 1) / WIDTH)[:, None]
        if CENTRE:
            d_x -= (tl.sum(d_normalised, 1) / WIDTH)[:, None]
        d_x *= inverse_std[:, None]
        if SUM_GRADIENT:
            d_x += tl.load(dTotal + index, mask=inside, other=0.0).to(tl.float32)
        tl.store(dX + index, d_x, mask=inside)
        if ADD:
            if DROP:
                d_x *= dropout_scales(Seed, index, threshold, scale)
            tl.store(dY + index, d_x, mask=inside)
    partial = dWeights + tl.program_id(0) * ((1 + SHIFT) * WIDTH) + column
    tl.store(partial, tl.sum(d_weight, 0), mask=column < WIDTH)
    if SHIFT:
        tl.store(partial + WIDTH, tl.sum(d_bias, 0), mask=column < WIDTH)


class AddNorm(torch.autograd.Function):
    """(x + dropout(y), its norm); without y: (x, its norm)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float,
        dropout: float, centre: bool, dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ctx.set_materialize_grads(False)
        rows, width = x.shape
        x, y = x.contiguous(), None if y is None else y.contiguous()
        drop = dropout > 0 and y is not None
        seed = torch.empty(1, dtype=torch.int64, device=x.device).random_() if drop else x
        total = x if y is None else torch.empty_like(x)
        normed = torch.empty_like(x, dtype=dtype)
        stats = torch.empty(2, rows, dtype=torch.float32, device=x.device)
        ctx.arguments = launch_arguments(width, y is not None, drop, centre)
        ctx.dropout = round(dropout * 2**31), 1 / (1 - dropout)
        ctx.dtypes = None if y is None else y.dtype, None if bias is None else bias.dtype
        add_norm_forward[(triton.cdiv(rows, ctx.arguments["ROWS"]),)](
            x, x if y is None else y, weight, weight if bias is None else bias, seed, total, normed,
            stats, rows, *ctx.dropout, eps, SHIFT=bias is not None, **ctx.arguments,
        )  # fmt: skip
        ctx.save_for_backward(total, weight, seed, stats)
        return total, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight, seed, stats = ctx.saved_tensors
        d_total, d_normed = gradients
        rows, width = total.shape
        y_dtype, bias_dtype = ctx.dtypes
        if d_normed is None:
            d_normed = torch.zeros_like(total)
        d_x = torch.empty_like(total)
        d_y = d_x if y_dtype is None else torch.empty_like(total, dtype=y_dtype)
        programs = min(PROGRAMS, max(1, triton.cdiv(rows, ctx.arguments["ROWS"])))
        sums = torch.empty(
            programs, 1 + (bias_dtype is not None), width, dtype=torch.float32, device=total.device
        )
        add_norm_backward[(programs,)](
            total, weight, seed, stats, total if d_total is None else d_total.contiguous(),
            d_normed.contiguous(), d_x, d_y, sums, rows, *ctx.dropout, SHIFT=bias_dtype is not None,
            SUM_GRADIENT=d_total is not None, **ctx.arguments,
        )  # fmt: skip
        d_weight, *rest = column_sum(sums.flatten(1)).split(width)
        shift = None if bias_dtype is None else rest[0].to(bias_dtype)
        return (
            d_x,
            None if y_dtype is None else d_y,
            d_weight.to(weight.dtype),
            shift,
            None,
            None,
            None,
            None,
        )


def launch_arguments(width: int, add: bool, drop: bool, centre: bool) -> dict[str, Any]:
    """Launch arguments that forward and backward share."""
    size = kernels.tile_size(width)
    rows = max(1, TILE_ELEMENTS // size)
    warps = 4 if size <= 2048 else 8
    sizes = {"WIDTH": width, "BLOCK": size, "ROWS": rows, "num_warps": warps}
    return {**sizes, "ADD": add, "DROP": drop, "CENTRE": centre}


def add_norm(
    x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor | None, *, eps: float, dropout: float,
    centre: bool, dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The residual sum x + dropout(y), and its norm in `dtype`."""
    return AddNorm.apply(x, y, weight, bias, eps, dropout, centre, dtype)
