"""swiglu: silu(a) ⊙ b for rows (a, b), in one pass forward and one back."""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

COLUMNS = 1024


@triton.jit
@no_type_check
def swiglu_forward(Both, Out, HALF: tl.constexpr, COLUMNS: tl.constexpr):
    """A block of columns of one row."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < HALF
    a = tl.load(Both + row * (2 * HALF) + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(Both + row * (2 * HALF) + HALF + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(Out + row * HALF + column, a * tl.sigmoid(a) * b, mask=inside)


@triton.jit
@no_type_check
def swiglu_backward(Both, dOut, dBoth, HALF: tl.constexpr, COLUMNS: tl.constexpr):
    """The gradients of both halves, for a block of columns of one row."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < HALF
    first, second = row * (2 * HALF) + column, row * (2 * HALF) + HALF + column
    a = tl.load(Both + first, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(Both + second, mask=inside, other=0.0).to(tl.float32)
    d_out = tl.load(dOut + row * HALF + column, mask=inside, other=0.0).to(tl.float32)
    gate = tl.sigmoid(a)
    tl.store(dBoth + first, d_out * b * gate * (1 + a * (1 - gate)), mask=inside)
    tl.store(dBoth + second, d_out * a * gate, mask=inside)


class SwiGLU(torch.autograd.Function):
    """silu of the first half, times the second half."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        both = both.contiguous()
        ctx.save_for_backward(both)
        rows, half = both.shape[0], both.shape[1] // 2
        out = both.new_empty(rows, half)
        if rows:
            swiglu_forward[(rows, triton.cdiv(half, COLUMNS))](
                both, out, HALF=half, COLUMNS=COLUMNS
            )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        rows, half = both.shape[0], both.shape[1] // 2
        d_both = torch.empty_like(both)
        if rows:
            swiglu_backward[(rows, triton.cdiv(half, COLUMNS))](
                both, gradients[0].contiguous(), d_both, HALF=half, COLUMNS=COLUMNS
            )
        return d_both


def swiglu(both: Tensor) -> Tensor:
    """silu(a) ⊙ b for rows (a, b)."""
    return SwiGLU.apply(both)
