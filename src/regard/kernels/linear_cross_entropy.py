"""linear_cross_entropy: the loss of h · Eᵀ with label smoothing, without storing all logits.

Tokens are processed in strips. A strip's logits are replaced by their gradient in place, which is
multiplied into the gradients of h and E at once: the loss is a sum, so the backward pass needs
nothing else. With two passes over the same tokens, R-Drop (Liang et al. 2021) is added.
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
from regard.kernels import compute_dtype
from regard.kernels.weight_cast import cast_and_concat

COLUMNS = 4096
STRIP_ELEMENTS = 2**28
IGNORE_INDEX = tl.constexpr(kernels.IGNORE_INDEX)


@triton.jit
@no_type_check
def log_sum_exp(logits, VOCABULARY: tl.constexpr, COLUMNS: tl.constexpr):
    """log Σ exp and the sum of a row of logits."""
    row_max, total, logit_sum = -float("inf"), 0.0, 0.0
    for start in range(0, VOCABULARY, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        z = tl.load(logits + column, mask=column < VOCABULARY, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(z, 0))
        total = total * tl.exp(row_max - new_max) + tl.sum(tl.exp(z - new_max), 0)
        logit_sum += tl.sum(tl.where(column < VOCABULARY, z, 0.0), 0)
        row_max = new_max
    return row_max + tl.log(total), logit_sum


@triton.jit
@no_type_check
def cross_entropy(logits, target, log_total, logit_sum, label_smoothing, VOCABULARY: tl.constexpr):
    """The cross-entropy of a row with label smoothing."""
    target_logit = tl.load(logits + target).to(tl.float32)
    return (
        log_total
        - (1 - label_smoothing) * target_logit
        - label_smoothing * (logit_sum / VOCABULARY)
    )


@triton.jit
@no_type_check
def cross_entropy_rows(
    Logits, Targets, Loss, Scale, label_smoothing,
    VOCABULARY: tl.constexpr, COLUMNS: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    """The loss of one token; GRADIENT: its logits are replaced by their gradient."""
    row = tl.program_id(0).to(tl.int64)
    logits, target = Logits + row * VOCABULARY, tl.load(Targets + row)
    counted = target != IGNORE_INDEX
    scale = tl.where(counted, tl.load(Scale), 0.0)
    log_total, logit_sum = log_sum_exp(logits, VOCABULARY, COLUMNS)
    loss = cross_entropy(
        logits, tl.where(counted, target, 0), log_total, logit_sum, label_smoothing, VOCABULARY
    )
    tl.store(Loss + row, tl.where(counted, loss, 0.0) * scale)
    if GRADIENT:
        tl.debug_barrier()  # all threads have read the target logit before it is overwritten
        for start in range(0, VOCABULARY, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            z = tl.load(logits + column, mask=column < VOCABULARY, other=-float("inf")).to(
                tl.float32
            )
            gradient = (
                tl.exp(z - log_total)
                - label_smoothing / VOCABULARY
                - tl.where(column == target, 1 - label_smoothing, 0.0)
            )
            tl.store(
                logits + column, tl.where(counted, gradient, 0.0) * scale, mask=column < VOCABULARY
            )


@triton.jit
@no_type_check
def rdrop_rows(
    First, Second, Targets, Loss, Scale, label_smoothing, rdrop,
    VOCABULARY: tl.constexpr, COLUMNS: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    """R-Drop: two passes p and q of one token.

    The mean of their losses, plus rdrop / 4 · Σ (p − q)(log p − log q).
    """
    row = tl.program_id(0).to(tl.int64)
    first, second, target = (
        First + row * VOCABULARY,
        Second + row * VOCABULARY,
        tl.load(Targets + row),
    )
    counted = target != IGNORE_INDEX
    scale = tl.where(counted, tl.load(Scale), 0.0)
    total1, sum1 = log_sum_exp(first, VOCABULARY, COLUMNS)
    total2, sum2 = log_sum_exp(second, VOCABULARY, COLUMNS)
    safe_target = tl.where(counted, target, 0)
    loss = cross_entropy(first, safe_target, total1, sum1, label_smoothing, VOCABULARY)
    loss += cross_entropy(second, safe_target, total2, sum2, label_smoothing, VOCABULARY)
    sum_p, sum_q = 0.0, 0.0  # Σ p d and Σ q d, where d = log p − log q
    for start in range(0, VOCABULARY, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = column < VOCABULARY
        log_p = tl.load(first + column, mask=inside, other=0.0).to(tl.float32) - total1
        log_q = tl.load(second + column, mask=inside, other=0.0).to(tl.float32) - total2
        d = tl.where(inside, log_p - log_q, 0.0)
        sum_p += tl.sum(tl.exp(log_p) * d, 0)
        sum_q += tl.sum(tl.exp(log_q) * d, 0)
    loss = loss / 2 + rdrop / 4 * (sum_p - sum_q)
    tl.store(Loss + row, tl.where(counted, loss, 0.0) * scale)
    if GRADIENT:
        tl.debug_barrier()
        for start in range(0, VOCABULARY, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            inside = column < VOCABULARY
            log_p = tl.load(first + column, mask=inside, other=0.0).to(tl.float32) - total1
            log_q = tl.load(second + column, mask=inside, other=0.0).to(tl.float32) - total2
            p, q, d = tl.exp(log_p), tl.exp(log_q), log_p - log_q
            label = label_smoothing / VOCABULARY + tl.where(
                column == target, 1 - label_smoothing, 0.0
            )
            gradient1 = (p - label) / 2 + rdrop / 4 * (p * (d - sum_p) + p - q)
            gradient2 = (q - label) / 2 + rdrop / 4 * (q * (sum_q - d) + q - p)
            tl.store(first + column, tl.where(counted, gradient1, 0.0) * scale, mask=inside)
            tl.store(second + column, tl.where(counted, gradient2, 0.0) * scale, mask=inside)


class LinearCrossEntropy(torch.autograd.Function):
    """The sum over tokens, times `scale`; for two passes their mean plus the R-Drop term."""

    @staticmethod
    def forward(
        ctx: Any,
        table: Tensor,
        targets: Tensor,
        scale: Tensor,
        label_smoothing: float,
        rdrop: float,
        *hidden: Tensor,
    ) -> Tensor:
        differentiate = ctx.needs_input_grad[0] or any(ctx.needs_input_grad[5:])
        dtype = compute_dtype(hidden[0])
        cast, weights = [h.to(dtype) for h in hidden], cast_and_concat((table,), dtype)
        tokens, vocabulary = len(targets), len(table)
        losses = torch.empty(tokens, dtype=torch.float32, device=table.device)
        d_hidden = [torch.empty_like(h) for h in cast] if differentiate else []
        strip, d_table = max(1024, STRIP_ELEMENTS // vocabulary), None
        arguments = {
            "VOCABULARY": vocabulary,
            "COLUMNS": min(COLUMNS, max(16, triton.next_power_of_2(vocabulary))),
            "GRADIENT": differentiate,
            "num_warps": 8,
        }
        for start in range(0, tokens, strip):
            rows = slice(start, min(start + strip, tokens))
            logits = [h[rows] @ weights.t() for h in cast]
            shared = targets[rows], losses[rows], scale, label_smoothing
            if len(logits) == 1:
                cross_entropy_rows[(len(logits[0]),)](*logits, *shared, **arguments)
            else:
                rdrop_rows[(len(logits[0]),)](*logits, *shared, rdrop, **arguments)
            if differentiate:
                for d_logits, h, d_h in zip(logits, cast, d_hidden, strict=True):
                    torch.mm(d_logits, weights, out=d_h[rows])
                    d_table = _add_product(d_table, d_logits, h[rows])
        if differentiate and d_table is None:  # no tokens
            d_table = torch.zeros_like(weights)
        ctx.save_for_backward(d_table, *d_hidden)
        ctx.dtypes = table.dtype, [h.dtype for h in hidden]
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_table, *d_hidden = ctx.saved_tensors
        table_dtype, hidden_dtypes = ctx.dtypes
        scaled = [
            (d_logits * gradients[0]).to(dtype)
            for d_logits, dtype in zip(d_hidden, hidden_dtypes, strict=True)
        ]
        return (d_table * gradients[0]).to(table_dtype), None, None, None, None, *scaled


def _add_product(total: Tensor | None, d_hidden: Tensor, hidden: Tensor) -> Tensor:
    """Add a strip's part of the table's gradient, in float32."""
    if d_hidden.dtype == torch.float32 or not d_hidden.is_cuda:
        part = (d_hidden.t() @ hidden).float()
    else:
        part = torch.mm(d_hidden.t(), hidden, out_dtype=torch.float32)
    return part if total is None else total.add_(part)


def linear_cross_entropy(
    hidden: list[Tensor],
    table: Tensor,
    targets: Tensor,
    scale: Tensor,
    *,
    label_smoothing: float,
    rdrop: float = 0.0,
) -> Tensor:
    """The cross-entropy of h · Eᵀ and the targets, times `scale`, without IGNORE_INDEX targets.

    Two hidden states per token (two passes with different dropout) add the R-Drop term.
    """
    return LinearCrossEntropy.apply(table, targets, scale, label_smoothing, rdrop, *hidden)
