"""Linear layers, residual sums and norms of a decoding step: products of few rows.

In float32 a GPU multiplies fastest on its matrix units, which take 11 bits per number. Each number
is split into two such parts and three products are added, with an error no larger than float32
rounding (`tf32x3`; Ootomo & Yokota 2022). In other dtypes torch's products are fast enough. The
residual stream is float32 in any dtype of the weights.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.decoding.buffers import NormWeights

PROCESSORS = 132  # tiles computed concurrently, approximately


class Tile(NamedTuple):
    """Rows and columns of a tile, terms of the sum per load, and parts of a split sum (split-k)."""

    rows: int
    columns: int
    depth: int
    parts: int
    warps: int = 4
    stages: int = 3


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """x W + b, optionally with relu; the weight is (in, out), a transposed view."""
    if x.dtype != torch.float32:
        if bias is None:
            return (x @ weight).relu() if relu else x @ weight
        return torch._addmm_activation(bias, x, weight) if relu else torch.addmm(bias, x, weight)
    return split_k_linear(
        x, weight, bias, relu=relu, tile=tile(*x.shape, weight.shape[1], split_k=False)
    )[0]


def logits(x: Tensor, weight: Tensor) -> Tensor:
    """x W in float32, so that rounding does not hide small differences of logits."""
    return (
        linear(x, weight, None)
        if x.dtype == torch.float32
        else torch.mm(x, weight, out_dtype=torch.float32)
    )


def split_k_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False, tile: Tile
) -> Tensor:
    """The partial sums of x W (+ b, if there is one part): (part, row, out)."""
    (rows, size), columns, weight = x.shape, weight.shape[1], weight.t()
    assert x.is_contiguous()
    assert weight.is_contiguous()
    out = x.new_empty(tile.parts, rows, columns)
    grid = triton.cdiv(columns, tile.columns), triton.cdiv(rows, tile.rows), tile.parts
    linear_tiles[grid](
        x, weight, x if bias is None else bias, out, rows, columns, size,
        triton.cdiv(size, tile.parts), ROWS=tile.rows, COLUMNS=tile.columns, DEPTH=tile.depth,
        BIAS=bias is not None, RELU=relu, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def tile(rows: int, size: int, columns: int, *, split_k: bool) -> Tile:
    """The largest tiles that keep all processors busy; `split_k` also divides sums.

    Measured on an H200 with a base model.
    """
    tile_rows = 16 if rows <= 16 else 32 if rows <= 32 else 64
    row_tiles = triton.cdiv(rows, tile_rows)
    if row_tiles * triton.cdiv(columns, 64) >= 2 * PROCESSORS - 10:
        return Tile(tile_rows, 64, 64, 1, stages=3 if row_tiles <= 8 else 2)
    if not split_k:
        return Tile(16, 32, 128, 1) if rows <= 64 else Tile(64, 32, 64, 1)
    tiles = row_tiles * triton.cdiv(columns, 32)
    parts = next((n for n in (8, 4, 2) if tiles * n <= 5 * PROCESSORS and size >= 128 * n), 1)
    return Tile(tile_rows, 32, 64, parts)


def embed(
    tokens: Tensor, table: Tensor, positions: Tensor | None, time: Tensor, norm: NormWeights | None
) -> tuple[Tensor, Tensor]:
    """The embedding of each row's token plus its position, and its norm in the table's dtype."""
    rows, size = len(tokens), table.shape[1]
    x, output = tokens.new_empty(rows, size, dtype=torch.float32), table.new_empty(rows, size)
    weight, bias, eps = (table, None, 0.0) if norm is None else norm[:3]
    embed_rows[(rows,)](
        tokens, table, table if positions is None else positions, time, x, output, weight,
        table if bias is None else bias, eps, BEAMS=rows // len(time), SIZE=size,
        WIDTH=triton.next_power_of_2(size), POSITIONS=positions is not None, NORM=norm is not None,
        CENTRE=bias is not None, num_warps=_warps(size),
    )  # fmt: skip
    return x, output


def linear_add_norm(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, norm: NormWeights | None
) -> Tensor:
    """Add y W + b to x in place, and return the norm of the sum.

    With a post-norm x becomes the norm; without a norm the sum itself is returned.
    """
    rows, size = x.shape
    if y.dtype == torch.float32:  # the kernel below adds the partial sums
        change = split_k_linear(y, weight, None, tile=tile(*y.shape, size, split_k=True))
    else:
        change, bias = linear(y, weight, bias)[None], None
    output = change.new_empty(rows, size)
    scale, shift, eps, before = (change, None, 0.0, True) if norm is None else norm
    add_norm_rows[(rows,)](
        x, change, change if bias is None else bias, output, scale,
        change if shift is None else shift, eps, rows * size, SIZE=size,
        WIDTH=triton.next_power_of_2(size), PARTS=len(change), BIAS=bias is not None, BEFORE=before,
        NORM=norm is not None, CENTRE=shift is not None, num_warps=_warps(size),
    )  # fmt: skip
    return output


def _warps(size: int) -> int:
    return max(1, min(8, triton.next_power_of_2(size) // 128))


@triton.jit
@no_type_check
def linear_tiles(
    x, weight, bias, out, rows, columns, size, part_size,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BIAS: tl.constexpr,
    RELU: tl.constexpr,
):  # fmt: skip
    """One tile of one part of x W."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row, part = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(2)
    last = tl.minimum((part + 1) * part_size, size)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(part * part_size, last, DEPTH):
        inner = first + tl.arange(0, DEPTH)
        left = tl.load(
            x + row[:, None] * size + inner[None, :],
            mask=(row < rows)[:, None] & (inner < last)[None, :],
            other=0.0,
        )
        right = tl.load(
            weight + column[None, :].to(tl.int64) * size + inner[:, None],
            mask=(column < columns)[None, :] & (inner < last)[:, None],
            other=0.0,
        )
        total = tl.dot(left, right, total, input_precision="tf32x3")
    if BIAS:
        total += tl.load(bias + column, mask=column < columns, other=0.0)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    index = (part * rows + row).to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(out + index, total, mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
@no_type_check
def normalise(x, weight, bias, eps, column, SIZE: tl.constexpr, CENTRE: tl.constexpr):
    """The norm of one row."""
    inside = column < SIZE
    if CENTRE:
        x = tl.where(inside, x - tl.sum(x, 0) / SIZE, 0.0)
    scale = 1 / tl.sqrt_rn(tl.sum(x * x, 0) / SIZE + eps)
    x = x * scale * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if CENTRE:
        x += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
@no_type_check
def embed_rows(
    tokens, table, positions, time, x, output, weight, bias, eps,
    BEAMS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, POSITIONS: tl.constexpr,
    NORM: tl.constexpr, CENTRE: tl.constexpr,
):  # fmt: skip
    """One row: embed its token, add its position, normalise."""
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    inside, token = column < SIZE, tl.load(tokens + row).to(tl.int64)
    vector = tl.load(table + token * SIZE + column, mask=inside, other=0.0).to(tl.float32)
    if POSITIONS:
        vector += tl.load(
            positions + tl.load(time + row // BEAMS) * SIZE + column, mask=inside, other=0.0
        )
    tl.store(x + row * SIZE + column, vector, mask=inside)
    if NORM:
        vector = normalise(vector, weight, bias, eps, column, SIZE, CENTRE)
    tl.store(output + row * SIZE + column, vector.to(output.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def add_norm_rows(
    x, change, added, output, weight, bias, eps, step,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr,
    BEFORE: tl.constexpr, NORM: tl.constexpr, CENTRE: tl.constexpr,
):  # fmt: skip
    """One row: add the change to the residual stream, normalise."""
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    inside, index = column < SIZE, row * SIZE + column
    vector = tl.load(x + index, mask=inside, other=0.0)
    for part in tl.static_range(PARTS):
        vector += tl.load(change + part * step + index, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        vector += tl.load(added + column, mask=inside, other=0.0)
    if BEFORE:
        tl.store(x + index, vector, mask=inside)
    if NORM:
        vector = normalise(vector, weight, bias, eps, column, SIZE, CENTRE)
    if not BEFORE:
        tl.store(x + index, vector, mask=inside)
    tl.store(output + index, vector.to(output.dtype.element_ty), mask=inside)
