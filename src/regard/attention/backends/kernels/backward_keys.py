"""Attention of any length, backward: gradients of keys, values and a learned bias.

Each block of keys loops over its queries. No program adds to memory that another one writes, so the
results are deterministic.

The bias gradient near the diagonal: tiles at the same block distance have the same distance in the
same element. A program sums the score gradients of all such tiles element by element and stores one
tile; its diagonals are summed at the end, without scattered additions.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.tiles import (
    SLOPE,
    TABLE,
    near_scores,
    query_bands,
    read,
    write,
)

LN2, LOG2E = tl.constexpr(0.6931471805599453), tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def loop_queries(
    dk, dv, left_sums, right_sums, k, v, Q, dO, lse, deltas, bias_table, slope, left_bias,
    right_bias, key, begin, near_start, near_end, end, queries, keys, q_time, scale, low, high,
    left, right,
    NEAR: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, HEADS: tl.constexpr,
    BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, BIAS_GRADIENT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Loop over the far or the NEAR queries: dv += Pᵀ · dO, dk += dSᵀ · q.

    With BIAS_GRADIENT, sum the score gradients where the bias is constant.
    """
    far = near_start - begin
    steps = near_end - near_start if NEAR else far + end - near_end
    for step in tl.range(
        0, steps, ROWS, num_stages=STAGES if not NEAR else 1 if BIAS == TABLE else 2
    ):
        start = (
            near_start + step if NEAR else tl.where(step < far, begin + step, near_end + step - far)
        )
        query = start + tl.arange(0, ROWS)
        q = read(Q, query, queries, q_time, DIM, WIDTH)
        d_out = read(dO, query, queries, HEADS * OUT, OUT, OUT_WIDTH)
        row_lse = tl.load(lse + query, mask=query < queries, other=float("inf"))
        delta = tl.load(deltas + query, mask=query < queries, other=0.0)
        scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        ahead = key[:, None] - query[None, :]
        if NEAR:
            scores = near_scores(
                scores, ahead, key[:, None], keys, bias_table, slope, scale, low, high, left, right,
                BIAS, LOW, HIGH,
            )  # fmt: skip
            weights = tl.exp2(scores - row_lse[None, :])
        elif BIAS == SLOPE:
            signed_slope = slope if HIGH else tl.where(step < far, -slope, slope)
            shift = signed_slope * (tl.max(key, 0) - query - left).to(tl.float32)
            scores = (
                scores * scale + (signed_slope * (key - tl.max(key, 0)).to(tl.float32))[:, None]
            )
            weights = tl.exp2(scores - (row_lse - shift)[None, :])
        else:
            shift = tl.where(step < far, right_bias, left_bias)
            weights = tl.exp2(scores * scale - (row_lse - shift)[None, :])
        dv = tl.dot(weights.to(d_out.dtype), d_out, dv, input_precision=PRECISION)
        d_weights = tl.dot(v, tl.trans(d_out), input_precision=PRECISION)
        d_scores = weights * (d_weights - delta[None, :])
        dk = tl.dot(d_scores.to(q.dtype), q, dk, input_precision=PRECISION)
        if BIAS_GRADIENT:
            if not NEAR:
                row_sums = tl.sum(d_scores, 1)
                left_sums += tl.where(step < far, 0.0, row_sums)
                right_sums += tl.where(step < far, row_sums, 0.0)
            else:
                left_sums += tl.sum(tl.where(ahead <= left, d_scores, 0.0), 1)
                right_sums += tl.sum(tl.where(ahead >= right, d_scores, 0.0), 1)
    return dk, dv, left_sums, right_sums


@triton.jit
@no_type_check
def long_keys(
    Q, K, V, dO, dK, dV, lse, deltas, far, bias_table, slopes, q_starts, q_lengths, k_starts,
    k_lengths, tokens, q_time, q_head, k_time, k_head, v_time, v_head, low, high, left, right,
    scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    OUT_WIDTH: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BIAS_GRADIENT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and values, one per query head (summed over groups later)."""
    first, head, sequence = tl.program_id(0) * KEYS, tl.program_id(1), tl.program_id(2)
    queries, keys = (
        tl.load(q_lengths + sequence).to(tl.int32),
        tl.load(k_lengths + sequence).to(tl.int32),
    )
    key = first + tl.arange(0, KEYS)
    left_sums, right_sums = tl.zeros([KEYS], tl.float32), tl.zeros([KEYS], tl.float32)
    if first < keys:
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        k = read(K + k_start * k_time + (head // GROUP) * k_head, key, keys, k_time, DIM, WIDTH)
        v = read(V + k_start * v_time + (head // GROUP) * v_head, key, keys, v_time, OUT, OUT_WIDTH)
        Q += q_start * q_time + head * q_head
        dO += q_start * (HEADS * OUT) + head * OUT
        lse += head.to(tl.int64) * tokens + q_start
        deltas += head.to(tl.int64) * tokens + q_start
        left_bias, right_bias, slope = 0.0, 0.0, 0.0
        if BIAS == TABLE:
            bias_table += head * (right - left + 1)
            left_bias, right_bias = tl.load(bias_table), tl.load(bias_table + right - left)
        if BIAS == SLOPE:
            slope = tl.load(slopes + head).to(tl.float32) * LOG2E
        begin, near_start, near_end, end = query_bands(
            first, queries, low, high, left, right, ROWS, KEYS, BIAS, LOW, HIGH,
        )  # fmt: skip
        dk, dv = tl.zeros([KEYS, WIDTH], tl.float32), tl.zeros([KEYS, OUT_WIDTH], tl.float32)
        if not LOW:
            dk, dv, left_sums, right_sums = loop_queries(
                dk, dv, left_sums, right_sums, k, v, Q, dO, lse, deltas, bias_table, slope,
                left_bias, right_bias, key, begin, near_start, near_end, end, queries, keys, q_time,
                scale, low, high, left, right, False, STAGES, ROWS, DIM, WIDTH, OUT, OUT_WIDTH,
                HEADS, BIAS, LOW, HIGH, BIAS_GRADIENT, PRECISION,
            )  # fmt: skip
        if BIAS or LOW or HIGH:
            dk, dv, left_sums, right_sums = loop_queries(
                dk, dv, left_sums, right_sums, k, v, Q, dO, lse, deltas, bias_table, slope,
                left_bias, right_bias, key, begin, near_start, near_end, end, queries, keys, q_time,
                scale, low, high, left, right, True, STAGES, ROWS, DIM, WIDTH, OUT, OUT_WIDTH,
                HEADS, BIAS, LOW, HIGH, BIAS_GRADIENT, PRECISION,
            )  # fmt: skip
        index = k_start * HEADS + head
        write(dK + index * DIM, dk * (scale * LN2), key, keys, HEADS * DIM, DIM, WIDTH)
        write(dV + index * OUT, dv, key, keys, HEADS * OUT, OUT, OUT_WIDTH)
    if BIAS_GRADIENT:
        program = (sequence * HEADS + head) * tl.num_programs(0) + tl.program_id(0)
        tl.store(far + program * 2, tl.sum(tl.where(key < keys, left_sums, 0.0), 0))
        tl.store(far + program * 2 + 1, tl.sum(tl.where(key < keys, right_sums, 0.0), 0))


@triton.jit
@no_type_check
def near_tiles(
    Q, K, V, dO, tiles, lse, deltas, bias_table, q_starts, q_lengths, k_starts, k_lengths, tokens,
    batch, first_diagonal, q_time, q_head, k_time, k_head, v_time, v_head, low, high, left, right,
    scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, CHUNKS: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program per block distance (from `first_diagonal` on), share of the blocks, and head."""
    diagonal, chunk, head = tl.program_id(0) // CHUNKS, tl.program_id(0) % CHUNKS, tl.program_id(1)
    bias_table += head * (right - left + 1)
    total = tl.zeros([TILE, TILE], tl.float32)
    for sequence in range(batch):
        queries, keys = (
            tl.load(q_lengths + sequence).to(tl.int32),
            tl.load(k_lengths + sequence).to(tl.int32),
        )
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        q_rows, k_rows = (
            Q + q_start * q_time + head * q_head,
            K + k_start * k_time + (head // GROUP) * k_head,
        )
        v_rows, d_rows = (
            V + k_start * v_time + (head // GROUP) * v_head,
            dO + q_start * (HEADS * OUT) + head * OUT,
        )
        row = head.to(tl.int64) * tokens + q_start
        shift = first_diagonal + diagonal
        begin = max(-shift, 0)
        begin += (chunk - begin % CHUNKS + CHUNKS) % CHUNKS
        end = min((queries + TILE - 1) // TILE, (keys + TILE - 1) // TILE - shift)
        for block in range(begin, end, CHUNKS):
            query = block * TILE + tl.arange(0, TILE)
            key = (block + shift) * TILE + tl.arange(0, TILE)
            q, k = (
                read(q_rows, query, queries, q_time, DIM, WIDTH),
                read(k_rows, key, keys, k_time, DIM, WIDTH),
            )
            v = read(v_rows, key, keys, v_time, OUT, OUT_WIDTH)
            d_out = read(d_rows, query, queries, HEADS * OUT, OUT, OUT_WIDTH)
            row_lse = tl.load(lse + row + query, mask=query < queries, other=float("inf"))
            delta = tl.load(deltas + row + query, mask=query < queries, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
            ahead = key[None, :] - query[:, None]
            scores = near_scores(
                scores, ahead, key[None, :], keys, bias_table, 0.0, scale, low, high, left, right,
                BIAS, LOW, HIGH,
            )  # fmt: skip
            d_weights = tl.dot(d_out, tl.trans(v), input_precision=PRECISION)
            total += tl.exp2(scores - row_lse[:, None]) * (d_weights - delta[:, None])
    index = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    program = head * tl.num_programs(0) + tl.program_id(0)
    tl.store(tiles + program.to(tl.int64) * (TILE * TILE) + index, total)
