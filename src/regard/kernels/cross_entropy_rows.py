"""Rows of logits: the loss of each token, and its logits turned into their gradient where they lie."""

# mypy: ignore-errors
# ruff: noqa: N803

from typing import no_type_check

import triton
import triton.language as tl

from regard import kernels

COLUMNS = 4096
IGNORED = tl.constexpr(kernels.IGNORED)


@triton.jit
@no_type_check
def summed_up(logits, VOCABULARY: tl.constexpr, COLUMNS: tl.constexpr):
    """log Σ exp and the plain sum of a row."""
    top, total, sum_ = -float("inf"), 0.0, 0.0
    for start in range(0, VOCABULARY, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        z = tl.load(logits + column, mask=column < VOCABULARY, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(z, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(z - higher), 0)
        sum_ += tl.sum(tl.where(column < VOCABULARY, z, 0.0), 0)
        top = higher
    return top + tl.log(total), sum_


@triton.jit
@no_type_check
def crossed(logits, right, log_total, sum_, label_smoothing, VOCABULARY: tl.constexpr):
    """The cross-entropy of a row with a smoothed label."""
    told = tl.load(logits + right).to(tl.float32)
    return log_total - (1 - label_smoothing) * told - label_smoothing * (sum_ / VOCABULARY)


@triton.jit
@no_type_check
def surprise_rows(
    Logits, Right, Loss, Share, label_smoothing, VOCABULARY: tl.constexpr, COLUMNS: tl.constexpr, LEARN: tl.constexpr
):  # fmt: skip
    """One token."""
    row = tl.program_id(0).to(tl.int64)
    logits, right = Logits + row * VOCABULARY, tl.load(Right + row)
    heard = right != IGNORED
    share = tl.where(heard, tl.load(Share), 0.0)
    log_total, sum_ = summed_up(logits, VOCABULARY, COLUMNS)
    loss = crossed(logits, tl.where(heard, right, 0), log_total, sum_, label_smoothing, VOCABULARY)
    tl.store(Loss + row, tl.where(heard, loss, 0.0) * share)
    if LEARN:
        tl.debug_barrier()  # all have read the told logit before it is written over
        for start in range(0, VOCABULARY, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            z = tl.load(logits + column, mask=column < VOCABULARY, other=-float("inf")).to(tl.float32)
            slope = (
                tl.exp(z - log_total)
                - label_smoothing / VOCABULARY
                - tl.where(column == right, 1 - label_smoothing, 0.0)
            )
            tl.store(logits + column, tl.where(heard, slope, 0.0) * share, mask=column < VOCABULARY)


@triton.jit
@no_type_check
def pair_rows(
    One, Other, Right, Loss, Share, label_smoothing, rdrop,
    VOCABULARY: tl.constexpr, COLUMNS: tl.constexpr, LEARN: tl.constexpr,
):  # fmt: skip
    """Two readings p and q of one token: the mean of their losses, and consistency / 4 · Σ (p − q)(log p − log q)."""
    row = tl.program_id(0).to(tl.int64)
    one, other, right = One + row * VOCABULARY, Other + row * VOCABULARY, tl.load(Right + row)
    heard = right != IGNORED
    share = tl.where(heard, tl.load(Share), 0.0)
    total1, sum1 = summed_up(one, VOCABULARY, COLUMNS)
    total2, sum2 = summed_up(other, VOCABULARY, COLUMNS)
    told = tl.where(heard, right, 0)
    loss = crossed(one, told, total1, sum1, label_smoothing, VOCABULARY)
    loss += crossed(other, told, total2, sum2, label_smoothing, VOCABULARY)
    ahead, behind = 0.0, 0.0  # Σ p d and Σ q d, where d = log p − log q
    for start in range(0, VOCABULARY, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = column < VOCABULARY
        log_p = tl.load(one + column, mask=inside, other=0.0).to(tl.float32) - total1
        log_q = tl.load(other + column, mask=inside, other=0.0).to(tl.float32) - total2
        d = tl.where(inside, log_p - log_q, 0.0)
        ahead += tl.sum(tl.exp(log_p) * d, 0)
        behind += tl.sum(tl.exp(log_q) * d, 0)
    loss = loss / 2 + rdrop / 4 * (ahead - behind)
    tl.store(Loss + row, tl.where(heard, loss, 0.0) * share)
    if LEARN:
        tl.debug_barrier()
        for start in range(0, VOCABULARY, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            inside = column < VOCABULARY
            log_p = tl.load(one + column, mask=inside, other=0.0).to(tl.float32) - total1
            log_q = tl.load(other + column, mask=inside, other=0.0).to(tl.float32) - total2
            p, q, d = tl.exp(log_p), tl.exp(log_q), log_p - log_q
            label = label_smoothing / VOCABULARY + tl.where(column == right, 1 - label_smoothing, 0.0)
            slope1 = (p - label) / 2 + rdrop / 4 * (p * (d - ahead) + p - q)
            slope2 = (q - label) / 2 + rdrop / 4 * (q * (behind - d) + q - p)
            tl.store(one + column, tl.where(heard, slope1, 0.0) * share, mask=inside)
            tl.store(other + column, tl.where(heard, slope2, 0.0) * share, mask=inside)
