"""Rotary positions in kernels: the cosine and sine tables come from rotating unit vectors.

Short sentences are rotated inside their kernel. For longer ones the kernel also rotates queries,
which it reads once; keys, which every block of queries reads, are rotated once by a kernel of their
own.
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

from regard.attention.backends.kernels.launch import Packed, PairRotation, tile_size
from regard.attention.backends.kernels.tiles import read_rotated, write_rotated_back

ROWS = 64


def rotation_tables(rotation: Any, like: Tensor, longest: int) -> PairRotation | None:
    """Tables of the first positions for kernels; None where not all dims are rotated in pairs."""
    dim = like.shape[2]
    if rotation.rotated_dims != dim or tile_size(dim) != dim or dim < 32:
        return None
    # Few different lengths, so that the cache never drops one: captured graphs keep reading them.
    rows = max(ROWS, 1 << (longest - 1).bit_length())
    return _tables(rotation, dim, like.dtype, like.device, rows)


@lru_cache(maxsize=512)  # all layers and steps share the tables
def _tables(
    rotation: Any, dim: int, dtype: torch.dtype, device: torch.device, rows: int
) -> PairRotation:
    strides = (1, dim // 2) if rotation.pairs == "halves" else (2, 1)
    first = torch.arange(dim // 2, device=device) * strides[0]
    unit = torch.zeros(dim, device=device, dtype=dtype).index_fill_(0, first, 1)
    rotated = rotation.rotate(unit.expand(rows, dim), torch.arange(rows, device=device))
    cos_sin = rotated[:, first].contiguous(), rotated[:, first + strides[1]].contiguous()
    return PairRotation(cos_sin, strides)


def tables_from(rotation: Any, side: Packed, first: int) -> PairRotation | None:
    """Tables for packed rows whose sequences start at position `first`."""
    tables = rotation_tables(rotation, side.rows, first + side.longest)
    return None if tables is None else tables.starting_at(first)


def rotate_packed(rotation: Any, side: Packed, first: int) -> Packed:
    """Packed rows rotated before the attention kernel; sequences start at position `first`."""
    tables = tables_from(rotation, side, first)
    if tables is not None:
        return side._replace(rows=RotaryFunction.apply(side.rows, side, tables))
    token = torch.arange(len(side.rows), device=side.rows.device)
    row = torch.searchsorted(side.starts[: len(side.lengths)].contiguous(), token, right=True) - 1
    positions = (token - side.starts[row] + first)[:, None]
    return side._replace(rows=rotation.rotate(side.rows, positions))


class RotaryFunction(torch.autograd.Function):
    """Rotates rows by their positions; rotates gradients back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, side: Packed, tables: PairRotation) -> Tensor:
        ctx.side, ctx.tables = side._replace(rows=rows), tables
        return rotate_rows(rows, ctx.side, tables)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows = gradients[0].contiguous()
        return rotate_rows(rows, ctx.side, ctx.tables, back=True), None, None


def rotate_rows(rows: Tensor, side: Packed, tables: PairRotation, *, back: bool = False) -> Tensor:
    """Rows rotated by their positions in `side`; with `back`, gradients rotated back."""
    _, heads, dim = rows.shape
    out = side.empty_gradient(heads, dim)
    rotate_kernel[(-(-side.longest // ROWS), heads, len(side.lengths))](
        rows, out, *tables.cos_sin, side.starts, side.lengths, rows.stride(0), rows.stride(1),
        heads * dim, DIM=dim, ROWS=ROWS, STEP=tables.strides[0], GAP=tables.strides[1], BACK=back,
        num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
@no_type_check
def rotate_kernel(
    X, Y, cos, sin, starts, lengths, time, head_step, out_time,
    DIM: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr,
    BACK: tl.constexpr,
):  # fmt: skip
    """Rotate a block of rows of one head, forwards or (BACK) backwards."""
    head, sequence = tl.program_id(1), tl.program_id(2)
    HALF: tl.constexpr = DIM // 2
    row, rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.load(lengths + sequence)
    start = tl.load(starts + sequence)
    x, y = X + start * time + head * head_step, Y + start * out_time + head * DIM
    inside = (row < rows)[:, None]
    index = row[:, None] * time + tl.arange(0, HALF)[None, :] * STEP
    if BACK:
        one, other = tl.load(x + index, mask=inside), tl.load(x + index + GAP, mask=inside)
        write_rotated_back(y, one, other, row, rows, out_time, cos, sin, HALF, STEP, GAP)
    else:
        one, other = read_rotated(x, row, rows, time, cos, sin, HALF, STEP, GAP)
        index = row[:, None] * out_time + tl.arange(0, HALF)[None, :] * STEP
        tl.store(y + index, one, mask=inside)
        tl.store(y + index + GAP, other, mask=inside)
