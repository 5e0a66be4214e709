"""embedding_lookup: scaled rows of a table, with a deterministic gradient.

The gradients of each row are summed in a fixed order. torch's order varies, so two training runs
would diverge after a few steps.
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

ROWS, COLUMNS = 32, 128  # of a tile


@triton.jit
@no_type_check
def sum_gradients(
    Gradient,
    Order,
    Starts,
    Table,
    scale,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A block of columns of one table row: the sum of the gradients of its tokens."""
    row, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first, last = tl.load(Starts + row), tl.load(Starts + row + 1)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(first, last, ROWS):
        index = start + tl.arange(0, ROWS)
        token = tl.load(Order + index, mask=index < last, other=0)
        inside = (index < last)[:, None] & (column < WIDTH)[None, :]
        sums += tl.load(
            Gradient + token[:, None] * WIDTH + column[None, :], mask=inside, other=0.0
        ).to(tl.float32)
    tl.store(
        Table + row.to(tl.int64) * WIDTH + column, tl.sum(sums, 0) * scale, mask=column < WIDTH
    )


class EmbeddingLookup(torch.autograd.Function):
    """table[ids] · scale."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.sizes = table.shape, table.dtype, scale
        return torch.nn.functional.embedding(ids, table) * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        (vocabulary, width), dtype, scale = ctx.sizes
        ordered, order = ids.sort(stable=True)
        starts = torch.searchsorted(ordered, torch.arange(vocabulary + 1, device=ids.device))
        table = torch.empty(vocabulary, width, dtype=dtype, device=ids.device)
        sum_gradients[(vocabulary, triton.cdiv(width, COLUMNS))](
            gradients[0].contiguous(),
            order,
            starts,
            table,
            scale,
            WIDTH=width,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
        )
        return None, table, None


def embedding_lookup(ids: Tensor, table: Tensor, scale: float) -> Tensor:
    """table[ids] · scale."""
    return EmbeddingLookup.apply(ids, table, scale)
