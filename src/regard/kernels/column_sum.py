"""column_sum: the column sums of a tall matrix, several times faster than torch's kernel."""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 64, 64  # of a tile
STRIPS = 128  # maximum number of row blocks summed in parallel


@triton.jit
@no_type_check
def column_sum_kernel(
    X, Sums, rows, strip, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """A block of columns of a strip of rows."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * strip
    last = tl.minimum(first + strip, rows)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(first, last, ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (row < last)[:, None] & (column < WIDTH)[None, :]
        sums += tl.load(X + row[:, None] * WIDTH + column[None, :], mask=inside, other=0.0).to(
            tl.float32
        )
    tl.store(Sums + tl.program_id(1) * WIDTH + column, tl.sum(sums, 0), mask=column < WIDTH)


def column_sum(x: Tensor) -> Tensor:
    """Σ over rows, in float32, in a fixed order (deterministic)."""
    rows, width = x.shape
    x = x.contiguous()
    while True:
        strips = min(STRIPS, triton.cdiv(rows, 4 * ROWS)) if rows > 8 * ROWS else 1
        strip = triton.cdiv(rows, strips)
        sums = torch.empty(strips, width, dtype=torch.float32, device=x.device)
        column_sum_kernel[(triton.cdiv(width, COLUMNS), strips)](
            x, sums, rows, strip, width, ROWS, COLUMNS
        )
        if strips == 1:
            return sums[0]
        x, rows = sums, strips
