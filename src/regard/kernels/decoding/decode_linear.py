"""Products of few rows. In float32 a GPU multiplies fastest by its matrix units, which take 11 bits of each number at
once: every number is cut into two such parts and three products are added, which loses no more than float32's own
rounding (`tf32x3`; Ootomo & Yokota 2022). In other types torch's products are as fast as can be.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

PROCESSORS = 132  # tiles that are computed at once, about


class Tile(NamedTuple):
    """Rows and columns of a tile, how many numbers of a sum are read at once, and parts that a sum is cut into."""

    rows: int
    columns: int
    depth: int
    parts: int
    warps: int = 4
    stages: int = 3


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """x W + b, and relu of it; the weight is (in, out), seen through its transpose."""
    if x.dtype != torch.float32:
        if bias is None:
            return (x @ weight).relu() if relu else x @ weight
        return torch._addmm_activation(bias, x, weight) if relu else torch.addmm(bias, x, weight)
    return parted(x, weight, bias, relu=relu, tile=tile(*x.shape, weight.shape[1], cut=False))[0]


def logits(x: Tensor, weight: Tensor) -> Tensor:
    """x W in float32: nearness of logits must not drown in the rounding of their products."""
    return linear(x, weight, None) if x.dtype == torch.float32 else torch.mm(x, weight, out_dtype=torch.float32)


def parted(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False, tile: Tile) -> Tensor:
    """The parts of x W (+ b, where there is one part), which are to be added up: (part, row, out)."""
    (rows, size), columns, weight = x.shape, weight.shape[1], weight.t()
    assert x.is_contiguous()
    assert weight.is_contiguous()
    out = x.new_empty(tile.parts, rows, columns)
    grid = triton.cdiv(columns, tile.columns), triton.cdiv(rows, tile.rows), tile.parts
    product_tiles[grid](
        x, weight, x if bias is None else bias, out, rows, columns, size, triton.cdiv(size, tile.parts),
        ROWS=tile.rows, COLUMNS=tile.columns, DEPTH=tile.depth, BIAS=bias is not None, RELU=relu,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def tile(rows: int, size: int, columns: int, *, cut: bool) -> Tile:
    """Tiles as large as leave work for every processor; where a sum may be cut, parts of it are such work. By what was
    measured on an H200 for a base model."""
    high = 16 if rows <= 16 else 32 if rows <= 32 else 64
    many = triton.cdiv(rows, high)
    if many * triton.cdiv(columns, 64) >= 2 * PROCESSORS - 10:
        return Tile(high, 64, 64, 1, stages=3 if many <= 8 else 2)
    if not cut:
        return Tile(16, 32, 128, 1) if rows <= 64 else Tile(64, 32, 64, 1)
    tiles = many * triton.cdiv(columns, 32)
    parts = next((n for n in (8, 4, 2) if tiles * n <= 5 * PROCESSORS and size >= 128 * n), 1)
    return Tile(high, 32, 64, parts)


@triton.jit
@no_type_check
def product_tiles(
    x, weight, bias, out, rows, columns, size, share,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """One tile of one part."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row, part = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(2)
    last = tl.minimum((part + 1) * share, size)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(part * share, last, DEPTH):
        inner = first + tl.arange(0, DEPTH)
        left = tl.load(
            x + row[:, None] * size + inner[None, :], mask=(row < rows)[:, None] & (inner < last)[None, :], other=0.0
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
    place = (part * rows + row).to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(out + place, total, mask=(row < rows)[:, None] & (column < columns)[None, :])
