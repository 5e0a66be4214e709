"""Attention of any length, backward: a block of keys walks over its queries for the gradients of keys and values.

Like the queries' kernel, it never adds to memory that another program writes: both are deterministic.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.bands import LINE, SLOPE, near_scores, query_bands
from regard.attention.backends.kernels.tiles import read, write

LN2, LOG2E = tl.constexpr(0.6931471805599453), tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def walk_queries(
    dk, dv, sums, other_sums, k, v, Q, dO, peaks, deltas, line, slope, level, other_level, key, begin, leaves, settled,
    end, queries, keys, q_time, scale, low, high, left, right,
    NEAR: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, HEADS: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr,
    KEEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of keys over its far queries, or its NEAR ones: dv += Pᵀ · dO, dk += dSᵀ · q. Where the bias has settled,
    the gradients of its one number are added up (KEEP)."""
    far = leaves - begin
    steps = settled - leaves if NEAR else far + end - settled
    for step in tl.range(0, steps, ROWS, num_stages=STAGES if not NEAR else 1 if BIAS == LINE else 2):
        start = leaves + step if NEAR else tl.where(step < far, begin + step, settled + step - far)
        query = start + tl.arange(0, ROWS)
        q = read(Q, query, queries, q_time, DIM, WIDTH)
        d_out = read(dO, query, queries, HEADS * OUT, OUT, OUT_WIDTH)
        peak = tl.load(peaks + query, mask=query < queries, other=float("inf"))
        delta = tl.load(deltas + query, mask=query < queries, other=0.0)
        scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        ahead = key[:, None] - query[None, :]
        if NEAR:
            scores = near_scores(
                scores, ahead, key[:, None], keys, line, slope, scale, low, high, left, right, BIAS, LOW, HIGH
            )  # fmt: skip
            weights = tl.exp2(scores - peak[None, :])
        elif BIAS == SLOPE:
            incline = slope if HIGH else tl.where(step < far, -slope, slope)
            shift = incline * (tl.max(key, 0) - query - left).to(tl.float32)
            scores = scores * scale + (incline * (key - tl.max(key, 0)).to(tl.float32))[:, None]
            weights = tl.exp2(scores - (peak - shift)[None, :])
        else:
            shift = tl.where(step < far, other_level, level)
            weights = tl.exp2(scores * scale - (peak - shift)[None, :])
        dv = tl.dot(weights.to(d_out.dtype), d_out, dv, input_precision=PRECISION)
        d_weights = tl.dot(v, tl.trans(d_out), input_precision=PRECISION)
        d_scores = weights * (d_weights - delta[None, :])
        dk = tl.dot(d_scores.to(q.dtype), q, dk, input_precision=PRECISION)
        if KEEP:
            if not NEAR:
                added = tl.sum(d_scores, 1)
                sums += tl.where(step < far, 0.0, added)
                other_sums += tl.where(step < far, added, 0.0)
            else:
                sums += tl.sum(tl.where(ahead <= left, d_scores, 0.0), 1)
                other_sums += tl.sum(tl.where(ahead >= right, d_scores, 0.0), 1)
    return dk, dv, sums, other_sums


@triton.jit
@no_type_check
def long_keys(
    Q, K, V, dO, dK, dV, peaks, deltas, far, line, slopes, q_starts, q_lengths, k_starts, k_lengths, tokens,
    q_time, q_head, k_time, k_head, v_time, v_head, low, high, left, right, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, BIAS: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, KEEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and values, written for every head (groups are added elsewhere)."""
    first, head, sequence = tl.program_id(0) * KEYS, tl.program_id(1), tl.program_id(2)
    queries, keys = tl.load(q_lengths + sequence).to(tl.int32), tl.load(k_lengths + sequence).to(tl.int32)
    key = first + tl.arange(0, KEYS)
    sums, other_sums = tl.zeros([KEYS], tl.float32), tl.zeros([KEYS], tl.float32)
    if first < keys:
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        k = read(K + k_start * k_time + (head // GROUP) * k_head, key, keys, k_time, DIM, WIDTH)
        v = read(V + k_start * v_time + (head // GROUP) * v_head, key, keys, v_time, OUT, OUT_WIDTH)
        Q += q_start * q_time + head * q_head
        dO += q_start * (HEADS * OUT) + head * OUT
        peaks += head.to(tl.int64) * tokens + q_start
        deltas += head.to(tl.int64) * tokens + q_start
        level, other_level, slope = 0.0, 0.0, 0.0
        if BIAS == LINE:
            line += head * (right - left + 1)
            level, other_level = tl.load(line), tl.load(line + right - left)
        if BIAS == SLOPE:
            slope = tl.load(slopes + head).to(tl.float32) * LOG2E
        begin, leaves, settled, end = query_bands(
            first, queries, low, high, left, right, ROWS, KEYS, BIAS, LOW, HIGH
        )  # fmt: skip
        dk, dv = tl.zeros([KEYS, WIDTH], tl.float32), tl.zeros([KEYS, OUT_WIDTH], tl.float32)
        if not LOW:
            dk, dv, sums, other_sums = walk_queries(
                dk, dv, sums, other_sums, k, v, Q, dO, peaks, deltas, line, slope, level, other_level, key, begin,
                leaves, settled, end, queries, keys, q_time, scale, low, high, left, right,
                False, STAGES, ROWS, DIM, WIDTH, OUT, OUT_WIDTH, HEADS, BIAS, LOW, HIGH, KEEP, PRECISION,
            )  # fmt: skip
        if BIAS or LOW or HIGH:
            dk, dv, sums, other_sums = walk_queries(
                dk, dv, sums, other_sums, k, v, Q, dO, peaks, deltas, line, slope, level, other_level, key, begin,
                leaves, settled, end, queries, keys, q_time, scale, low, high, left, right,
                True, STAGES, ROWS, DIM, WIDTH, OUT, OUT_WIDTH, HEADS, BIAS, LOW, HIGH, KEEP, PRECISION,
            )  # fmt: skip
        place = k_start * HEADS + head
        write(dK + place * DIM, dk * (scale * LN2), key, keys, HEADS * DIM, DIM, WIDTH)
        write(dV + place * OUT, dv, key, keys, HEADS * OUT, OUT, OUT_WIDTH)
    if KEEP:
        program = (sequence * HEADS + head) * tl.num_programs(0) + tl.program_id(0)
        tl.store(far + program * 2, tl.sum(tl.where(key < keys, sums, 0.0), 0))
        tl.store(far + program * 2 + 1, tl.sum(tl.where(key < keys, other_sums, 0.0), 0))
