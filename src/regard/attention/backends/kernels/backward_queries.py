"""Attention of any length, backward: each block of queries loops over its keys for dQ."""

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
    read_whole,
    write,
)

LN2, LOG2E = tl.constexpr(0.6931471805599453), tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def loop_keys(
    dq, delta, total, q, d_out, row_lse, K, V, bias_table, slope, left_bias, right_bias, query,
    left_end, right_start, right_end, end, keys, k_time, v_time, scale, low, high, left, right,
    NEAR: tl.constexpr, SUM: tl.constexpr, STAGES: tl.constexpr, KEYS: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Loop over the far or the NEAR keys: dq += dS · k; with SUM only delta += Σ P · dP."""
    near = right_start - left_end
    steps = near + end - right_end if NEAR else left_end + right_end - right_start
    k_pointers = pointers(K, tl.arange(0, KEYS), k_time, WIDTH)
    v_pointers = pointers(V, tl.arange(0, KEYS), v_time, OUT_WIDTH)
    for step in tl.range(
        0, steps, KEYS, num_stages=STAGES if not NEAR else 1 if BIAS == TABLE else 2
    ):
        if NEAR:
            start = tl.where(step < near, left_end + step, right_end + step - near)
        else:
            start = tl.where(step < left_end, step, right_start + step - left_end)
        key = start + tl.arange(0, KEYS)
        if NEAR:
            k = read(K, key, keys, k_time, DIM, WIDTH)
            v = read(V, key, keys, v_time, OUT, OUT_WIDTH)
        else:
            k = read_whole(k_pointers, start.to(tl.int64) * k_time, DIM, WIDTH)
            v = read_whole(v_pointers, start.to(tl.int64) * v_time, OUT, OUT_WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if NEAR:
            ahead = key[None, :] - query[:, None]
            scores = near_scores(
                scores, ahead, key[None, :], keys, bias_table, slope, scale, low, high, left, right,
                BIAS, LOW, HIGH,
            )  # fmt: skip
            weights = tl.exp2(scores - row_lse[:, None])
        elif BIAS == SLOPE:
            signed_slope = slope if HIGH else tl.where(step < left_end, slope, -slope)
            shift = signed_slope * (start - query - left).to(tl.float32)
            scores = scores * scale + (signed_slope * tl.arange(0, KEYS).to(tl.float32))[None, :]
            weights = tl.exp2(scores - (row_lse - shift)[:, None])
        else:
            shift = tl.where(step < left_end, left_bias, right_bias)
            weights = tl.exp2(scores * scale - (row_lse - shift)[:, None])
        d_weights = tl.dot(d_out, tl.trans(v), input_precision=PRECISION)
        if SUM:
            delta += tl.sum(weights * d_weights, 1)
            total += tl.sum(weights, 1)
        else:
            d_scores = weights * (d_weights - delta[:, None])
            dq = tl.dot(d_scores.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq, delta, total


@triton.jit
@no_type_check
def loop_all_keys(
    dq, delta, total, q, d_out, row_lse, K, V, bias_table, slope, left_bias, right_bias, query,
    left_end, right_start, right_end, end, keys, k_time, v_time, scale, low, high, left, right,
    SUM: tl.constexpr, STAGES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, BIAS: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Loop over the far keys, then over the near ones."""
    if not LOW:
        dq, delta, total = loop_keys(
            dq, delta, total, q, d_out, row_lse, K, V, bias_table, slope, left_bias, right_bias,
            query, left_end, right_start, right_end, end, keys, k_time, v_time, scale, low, high,
            left, right, False, SUM, STAGES, KEYS, DIM, WIDTH, OUT, OUT_WIDTH, BIAS, LOW, HIGH,
            PRECISION,
        )  # fmt: skip
    return loop_keys(
        dq, delta, total, q, d_out, row_lse, K, V, bias_table, slope, left_bias, right_bias, query,
        left_end, right_start, right_end, end, keys, k_time, v_time, scale, low, high, left, right,
        True, SUM, STAGES, KEYS, DIM, WIDTH, OUT, OUT_WIDTH, BIAS, LOW, HIGH, PRECISION,
    )  # fmt: skip


@triton.jit
@no_type_check
def long_queries(
    Q, K, V, Out, dO, dQ, lse, deltas, bias_table, slopes, q_starts, q_lengths, k_starts, k_lengths,
    tokens, q_time, q_head, k_time, k_head, v_time, v_head, low, high, left, right, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    OUT_WIDTH: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of queries, and Σ dO · O of each row (`deltas`) for the next kernel.

    In float32 a separate loop computes that sum as Σ P · dP, from the same numbers as the
    gradients, so that a row's gradients sum to zero up to their own rounding.
    """
    first, head, sequence = tl.program_id(0) * ROWS, tl.program_id(1), tl.program_id(2)
    queries, keys = (
        tl.load(q_lengths + sequence).to(tl.int32),
        tl.load(k_lengths + sequence).to(tl.int32),
    )
    if HIGH:
        first = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    if first < queries:
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        K += k_start * k_time + (head // GROUP) * k_head
        V += k_start * v_time + (head // GROUP) * v_head
        query = first + tl.arange(0, ROWS)
        index = q_start * (HEADS * OUT) + head * OUT
        q = read(Q + q_start * q_time + head * q_head, query, queries, q_time, DIM, WIDTH)
        d_out = read(dO + index, query, queries, HEADS * OUT, OUT, OUT_WIDTH)
        row = head.to(tl.int64) * tokens + q_start + query
        row_lse = tl.load(lse + row, mask=query < queries, other=float("inf"))
        left_bias, right_bias, slope = 0.0, 0.0, 0.0
        if BIAS == TABLE:
            bias_table += head * (right - left + 1)
            left_bias, right_bias = tl.load(bias_table), tl.load(bias_table + right - left)
        if BIAS == SLOPE:
            slope = tl.load(slopes + head).to(tl.float32) * LOG2E
        left_end, right_start, right_end, end = key_bands(
            first, keys, low, high, left, right, ROWS, KEYS, BIAS, LOW, HIGH,
        )  # fmt: skip
        dq, total = tl.zeros([ROWS, WIDTH], tl.float32), tl.zeros([ROWS], tl.float32)
        if PRECISION == "ieee":
            dq, delta, total = loop_all_keys(
                dq, tl.zeros([ROWS], tl.float32), total, q, d_out, row_lse, K, V, bias_table, slope,
                left_bias, right_bias, query, left_end, right_start, right_end, end, keys, k_time,
                v_time, scale, low, high, left, right, True, STAGES, KEYS, DIM, WIDTH, OUT,
                OUT_WIDTH, BIAS, LOW, HIGH, PRECISION,
            )  # fmt: skip
            delta /= tl.where(total == 0.0, 1.0, total)
        else:
            out = read(Out + index, query, queries, HEADS * OUT, OUT, OUT_WIDTH)
            delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
        tl.store(deltas + row, delta, mask=query < queries)
        dq, delta, total = loop_all_keys(
            dq, delta, total, q, d_out, row_lse, K, V, bias_table, slope, left_bias, right_bias,
            query, left_end, right_start, right_end, end, keys, k_time, v_time, scale, low, high,
            left, right, False, STAGES, KEYS, DIM, WIDTH, OUT, OUT_WIDTH, BIAS, LOW, HIGH,
            PRECISION,
        )  # fmt: skip
        dQ += q_start * (HEADS * DIM) + head * DIM
        write(dQ, dq * (scale * LN2), query, queries, HEADS * DIM, DIM, WIDTH)
