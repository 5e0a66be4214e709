"""Surprise: the cross-entropy of h · Eᵀ with smoothed labels, in strips of tokens: all logits never exist at once.

A strip's logits become their own gradient where they lie, and that goes into the gradients of h and E at once: the loss
is a sum, so nothing has to be kept for a backward pass but these. Two readings of the same tokens, with other dropout,
are also held to each other.
"""

# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels import computing
from regard.kernels.cross_entropy_rows import COLUMNS, pair_rows, surprise_rows
from regard.kernels.weight_cast import beside

NUMBERS = 2**28  # of a strip


class Surprise(torch.autograd.Function):
    """The sum over tokens, each counted by `share`; of two readings, their mean and how far they are apart."""

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, right: Tensor, share: Tensor, label_smoothing: float, rdrop: float, *read: Tensor
    ) -> Tensor:
        learn = ctx.needs_input_grad[0] or any(ctx.needs_input_grad[5:])
        kind = computing(read[0])
        halves, weights = [h.to(kind) for h in read], beside((table,), kind)
        tokens, vocabulary = len(right), len(table)
        losses = torch.empty(tokens, dtype=torch.float32, device=table.device)
        slopes = [torch.empty_like(h) for h in halves] if learn else []
        strip, d_table = max(1024, NUMBERS // vocabulary), None
        told = {
            "VOCABULARY": vocabulary,
            "COLUMNS": min(COLUMNS, max(16, triton.next_power_of_2(vocabulary))),
            "LEARN": learn,
            "num_warps": 8,
        }
        for start in range(0, tokens, strip):
            rows = slice(start, min(start + strip, tokens))
            logits = [h[rows] @ weights.t() for h in halves]
            place = right[rows], losses[rows], share, label_smoothing
            if len(logits) == 1:
                surprise_rows[(len(logits[0]),)](*logits, *place, **told)
            else:
                pair_rows[(len(logits[0]),)](*logits, *place, rdrop, **told)
            if learn:
                for slope, h, d_h in zip(logits, halves, slopes, strict=True):
                    torch.mm(slope, weights, out=d_h[rows])
                    d_table = _added(d_table, slope, h[rows])
        if learn and d_table is None:  # nothing was read
            d_table = torch.zeros_like(weights)
        ctx.save_for_backward(d_table, *slopes)
        ctx.kinds = table.dtype, [h.dtype for h in read]
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_table, *slopes = ctx.saved_tensors
        of_table, of_read = ctx.kinds
        back = [(slope * gradients[0]).to(kind) for slope, kind in zip(slopes, of_read, strict=True)]
        return (d_table * gradients[0]).to(of_table), None, None, None, None, *back


def _added(so_far: Tensor | None, slopes: Tensor, read: Tensor) -> Tensor:
    """A strip's part of the table's gradient, added up in float32."""
    if slopes.dtype == torch.float32 or not slopes.is_cuda:
        part = (slopes.t() @ read).float()
    else:
        part = torch.mm(slopes.t(), read, out_dtype=torch.float32)
    return part if so_far is None else so_far.add_(part)


def surprise(
    read: list[Tensor], table: Tensor, right: Tensor, share: Tensor, *, label_smoothing: float, rdrop: float = 0.0
) -> Tensor:
    """How surprised h · Eᵀ is by the right tokens, each counted by `share`; IGNORED ones not at all. Two readings are
    also pulled together."""
    return Surprise.apply(table, right, share, label_smoothing, rdrop, *read)
