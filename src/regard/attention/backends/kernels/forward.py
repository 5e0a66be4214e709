"""Attention of any length, forward: each block of queries loops over its keys, band by band.

The algorithm is FlashAttention-2 (Dao 2023); `bands` defines the bands.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.tiles import (
    SLOPE,
    TABLE,
    key_bands,
    near_scores,
    pointers,
    read,
    read_rotated_in_order,
    read_whole,
    write,
)

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def loop_near(
    context, total, row_max, q, K, V, bias_table, slope, query, left_end, right_start, right_end,
    end, keys, k_time, v_time, scale, low, high, left, right, origin,
    KEYS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    OUT_WIDTH: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Loop over keys near the diagonal and at the end: masks and biases vary per key."""
    KEYED: tl.constexpr = BIAS == SLOPE and HIGH and not LOW and PRECISION != "ieee"
    near = right_start - left_end
    for step in tl.range(
        0, near + end - right_end, KEYS, num_stages=1 if BIAS == TABLE else 2
    ):  # one table
        start = tl.where(step < near, left_end + step, right_end + step - near)
        key = start + tl.arange(0, KEYS)
        k = read(K, key, keys, k_time, DIM, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        ahead = key[None, :] - query[:, None]
        scores = near_scores(
            scores, ahead, key[None, :], keys, bias_table, slope, scale, low, high, left, right,
            0 if KEYED else BIAS, LOW, HIGH,
        )  # fmt: skip
        if KEYED:
            scores += (slope * (key - origin).to(tl.float32))[None, :]
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        safe = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(scores - safe[:, None])
        rescale = tl.exp2(row_max - safe)
        total = total * rescale + tl.sum(weights, 1)
        v = read(V, key, keys, v_time, OUT, OUT_WIDTH)
        context = tl.dot(
            weights.to(v.dtype), v, context * rescale[:, None], input_precision=PRECISION
        )
        row_max = new_max
    return context, total, row_max


@triton.jit
@no_type_check
def loop_far(
    context, total, row_max, q, K, V, left_bias, right_bias, slope, query, left_end, right_start,
    right_end, k_time, v_time, scale, left, origin,
    KEYS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    OUT_WIDTH: tl.constexpr, BIAS: tl.constexpr, HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Loop over unmasked keys that share one bias per side, or one slope.

    Under a causal mask a slope reduces to a bias per key, because the query's share is constant in
    its row. (Not in float32, where the rounding of the cancelling terms would show.)
    """
    k_pointers = pointers(K, tl.arange(0, KEYS), k_time, WIDTH)
    v_pointers = pointers(V, tl.arange(0, KEYS), v_time, OUT_WIDTH)
    for step in range(0, left_end + right_end - right_start, KEYS):
        start = step
        if not HIGH:
            start = tl.where(step < left_end, step, right_start + step - left_end)
        k = read_whole(k_pointers, start.to(tl.int64) * k_time, DIM, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if BIAS == SLOPE:
            signed_slope = slope if HIGH else tl.where(step < left_end, slope, -slope)
            scores = scores * scale + (signed_slope * tl.arange(0, KEYS).to(tl.float32))[None, :]
            if HIGH and PRECISION != "ieee":
                shift = slope * (start - origin).to(tl.float32)
            else:
                shift = signed_slope * (start - query - left).to(tl.float32)
            new_max = tl.maximum(row_max, tl.max(scores, 1) + shift)
            weights = tl.exp2(scores - (new_max - shift)[:, None])
        else:
            shift = left_bias if HIGH else tl.where(step < left_end, left_bias, right_bias)
            new_max = tl.maximum(row_max, tl.max(scores, 1) * scale + shift)
            weights = tl.exp2(scores * scale - (new_max - shift)[:, None])
        rescale = tl.exp2(row_max - new_max)
        total = total * rescale + tl.sum(weights, 1)
        v = read_whole(v_pointers, start.to(tl.int64) * v_time, OUT, OUT_WIDTH)
        context = tl.dot(
            weights.to(v.dtype), v, context * rescale[:, None], input_precision=PRECISION
        )
        row_max = new_max
    return context, total, row_max


@triton.jit
@no_type_check
def long_forward(
    Q, K, V, Out, lse, bias_table, slopes, cos, sin, q_starts, q_lengths, k_starts, k_lengths,
    tokens, q_time, q_head, k_time, k_head, v_time, v_head, low, high, left, right, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, PRECISION: tl.constexpr,
    ROTATE: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr,
):  # fmt: skip
    """One program per block of queries, head and sequence; stores log₂ of the row sums (`lse`)."""
    first, head, sequence = tl.program_id(0) * ROWS, tl.program_id(1), tl.program_id(2)
    queries, keys = (
        tl.load(q_lengths + sequence).to(tl.int32),
        tl.load(k_lengths + sequence).to(tl.int32),
    )
    if HIGH:  # start the longest loops first
        first = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    if first < queries:
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        K += k_start * k_time + (head // GROUP) * k_head
        V += k_start * v_time + (head // GROUP) * v_head
        query = first + tl.arange(0, ROWS)
        Q += q_start * q_time + head * q_head
        if ROTATE:
            q = read_rotated_in_order(Q, query, queries, q_time, cos, sin, WIDTH // 2, STEP, GAP)
        else:
            q = read(Q, query, queries, q_time, DIM, WIDTH)
        left_bias, right_bias, slope = 0.0, 0.0, 0.0
        if BIAS == TABLE:
            bias_table += head * (right - left + 1)
            left_bias, right_bias = tl.load(bias_table), tl.load(bias_table + right - left)
        if BIAS == SLOPE:
            slope = tl.load(slopes + head).to(tl.float32) * LOG2E
        left_end, right_start, right_end, end = key_bands(
            first, keys, low, high, left, right, ROWS, KEYS, BIAS, LOW, HIGH,
        )  # fmt: skip
        context = tl.zeros([ROWS, OUT_WIDTH], tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        row_max = tl.full([ROWS], float("-inf"), tl.float32)
        if not LOW:
            context, total, row_max = loop_far(
                context, total, row_max, q, K, V, left_bias, right_bias, slope, query, left_end,
                right_start, right_end, k_time, v_time, scale, left, first + left, KEYS, DIM, WIDTH,
                OUT, OUT_WIDTH, BIAS, HIGH, PRECISION,
            )  # fmt: skip
        context, total, row_max = loop_near(
            context, total, row_max, q, K, V, bias_table, slope, query, left_end, right_start,
            right_end, end, keys, k_time, v_time, scale, low, high, left, right, first + left, KEYS,
            DIM, WIDTH, OUT, OUT_WIDTH, BIAS, LOW, HIGH, PRECISION,
        )  # fmt: skip
        empty = total == 0.0
        row_lse = tl.where(empty, float("inf"), row_max + tl.log2(tl.where(empty, 1.0, total)))
        if BIAS == SLOPE and HIGH and not LOW and PRECISION != "ieee":
            row_lse -= slope * tl.arange(0, ROWS).to(tl.float32)
        tl.store(lse + head.to(tl.int64) * tokens + q_start + query, row_lse, mask=query < queries)
        context = context / tl.where(empty, 1.0, total)[:, None]
        Out += q_start * (HEADS * OUT) + head * OUT
        write(Out, context, query, queries, HEADS * OUT, OUT, OUT_WIDTH)
