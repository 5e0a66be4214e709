"""Where a block of queries meets keys, cut into bands: left of the diagonal the bias is one number (or one slope), near
it anything, right of it one number again. Only near bands look numbers up and hide keys.

`low` and `high` bound key − query where a mask does; `left` and `right` are where the bias settles.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.tiles import visible

LINE, SLOPE = tl.constexpr(1), tl.constexpr(2)  # kinds of bias; 0: none


@triton.jit
@no_type_check
def key_bands(
    query, keys, low, high, left, right,
    ROWS: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
):  # fmt: skip
    """Bands of keys for a block of queries: far up to `settled`, near, far from `resumed` to `full`, near to `end`."""
    end = keys
    full = keys // KEYS * KEYS
    if HIGH:
        end = min(keys, max(query + ROWS + high, 0))
        full = min(full, max(query + high + 1, 0) // KEYS * KEYS)
    if LOW:
        full = min(max(query + low, 0) // KEYS * KEYS, end)
    settled, resumed = full, full
    if BIAS:
        settled = min(max(query + left + 1, 0) // KEYS * KEYS, full)
        resumed = max(min((max(query + ROWS - 1 + right, 0) + KEYS - 1) // KEYS * KEYS, full), settled)
        if HIGH:
            resumed = full
    if LOW:
        settled, resumed = full, full
    return settled, resumed, full, max(end, full)


@triton.jit
@no_type_check
def query_bands(
    key, queries, low, high, left, right,
    ROWS: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
):  # fmt: skip
    """Bands of queries for a block of keys: far from `begin` to `leaves`, near, far from `settled` to `end`."""
    begin = 0
    end = queries
    if HIGH:
        begin = max(key - high, 0) // ROWS * ROWS
    if LOW:
        end = min(queries, max(key + KEYS - low, 0))
    leaves, settled = begin, begin
    if BIAS:
        if not HIGH:
            leaves = max(key + 1 - right, 0) // ROWS * ROWS
        settled = (max(key + KEYS - 1 - left, 0) + ROWS - 1) // ROWS * ROWS
    if HIGH:
        settled = max(settled, (max(key + KEYS - 1 - high, 0) + ROWS - 1) // ROWS * ROWS)
    if LOW:
        leaves, settled = begin, end
    leaves = min(leaves, end)
    return begin, leaves, max(min(settled, end), leaves), end


@triton.jit
@no_type_check
def near_scores(
    scores, ahead, key, keys, line, slope, scale, low, high, left, right,
    BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
):  # fmt: skip
    """Scores anywhere: scaled, biased, hidden."""
    scores *= scale
    if BIAS == LINE:
        scores += tl.load(line + tl.minimum(tl.maximum(ahead, left), right) - left)
    if BIAS == SLOPE:
        scores -= slope * tl.abs(ahead - left).to(tl.float32)
    return tl.where(visible(ahead, key, keys, low, high, LOW, HIGH), scores, float("-inf"))
