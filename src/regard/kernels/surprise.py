"""Surprise: the cross-entropy of h · Eᵀ with smoothed labels, in strips of tokens: all logits never exist at once.

A strip's logits become their own gradient where they lie, and that goes into the gradients of h and E at once: the loss
is a sum, so nothing has to be kept for a backward pass but these.
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

from regard.kernels import IGNORED, computing
from regard.kernels.halves import beside

NUMBERS = 2**28  # of a strip
COLUMNS = 4096


@triton.jit
@no_type_check
def surprise_rows(
    Logits, Right, Loss, Share, smoothing, IGNORED: tl.constexpr, VOCABULARY: tl.constexpr, COLUMNS: tl.constexpr,
    LEARN: tl.constexpr,
):  # fmt: skip
    """One token: its loss; and where it is to be learned from, its logits turned into their gradient."""
    row = tl.program_id(0).to(tl.int64)
    logits, right = Logits + row * VOCABULARY, tl.load(Right + row)
    top, total, sum_ = -float("inf"), 0.0, 0.0
    for start in range(0, VOCABULARY, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        z = tl.load(logits + column, mask=column < VOCABULARY, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(z, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(z - higher), 0)
        sum_ += tl.sum(tl.where(column < VOCABULARY, z, 0.0), 0)
        top = higher
    heard = right != IGNORED
    log_total = top + tl.log(total)
    told = tl.load(logits + tl.where(heard, right, 0)).to(tl.float32)
    share = tl.where(heard, tl.load(Share), 0.0)
    loss = log_total - (1 - smoothing) * told - smoothing * (sum_ / VOCABULARY)
    tl.store(Loss + row, tl.where(heard, loss, 0.0) * share)
    if LEARN:
        tl.debug_barrier()  # all have read the told logit before it is written over
        for start in range(0, VOCABULARY, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            z = tl.load(logits + column, mask=column < VOCABULARY, other=-float("inf")).to(tl.float32)
            slope = tl.exp(z - log_total) - smoothing / VOCABULARY - tl.where(column == right, 1 - smoothing, 0.0)
            tl.store(logits + column, tl.where(heard, slope, 0.0) * share, mask=column < VOCABULARY)


class Surprise(torch.autograd.Function):
    """The sum over tokens, each counted by `share`."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, table: Tensor, right: Tensor, share: Tensor, smoothing: float) -> Tensor:
        learn = any(ctx.needs_input_grad[:2])
        kind = computing(h)
        read, weights = h.to(kind), beside((table,), kind)
        tokens, vocabulary = len(h), len(table)
        strip = max(1024, NUMBERS // vocabulary)
        losses = torch.empty(tokens, dtype=torch.float32, device=h.device)
        d_h = torch.empty_like(read) if learn else None
        d_table = None
        for start in range(0, tokens, strip):
            rows = slice(start, min(start + strip, tokens))
            logits = read[rows] @ weights.t()
            surprise_rows[(len(logits),)](
                logits, right[rows], losses[rows], share, smoothing, IGNORED=IGNORED, VOCABULARY=vocabulary,
                COLUMNS=min(COLUMNS, max(16, triton.next_power_of_2(vocabulary))), LEARN=learn, num_warps=8,
            )  # fmt: skip
            if learn:
                torch.mm(logits, weights, out=d_h[rows])
                d_table = _added(d_table, logits, read[rows])
        ctx.save_for_backward(d_h, d_table)
        ctx.kinds = h.dtype, table.dtype
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_h, d_table = ctx.saved_tensors
        of_h, of_table = ctx.kinds
        return (d_h * gradients[0]).to(of_h), (d_table * gradients[0]).to(of_table), None, None, None


def _added(so_far: Tensor | None, slopes: Tensor, read: Tensor) -> Tensor:
    """A strip's part of the table's gradient, added up in float32."""
    if slopes.dtype == torch.float32 or not slopes.is_cuda:
        part = (slopes.t() @ read).float()
    else:
        part = torch.mm(slopes.t(), read, out_dtype=torch.float32)
    return part if so_far is None else so_far.add_(part)


def surprise(h: Tensor, table: Tensor, right: Tensor, share: Tensor, *, smoothing: float) -> Tensor:
    """How surprised h · Eᵀ is by the right tokens, each counted by `share`; IGNORED ones not at all."""
    return Surprise.apply(h, table, right, share, smoothing)
