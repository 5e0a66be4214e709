"""Attention of short sequences: one tile holds a whole sentence of one head.

Each number is read and written once. The backward pass recomputes the softmax, so only the inputs
are saved.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.tiles import (
    gradients_by_distance,
    read,
    read_rotated,
    terms_by_distance,
    visible,
    write,
    write_rotated_back,
)


@triton.jit
@no_type_check
def vector_gradients(
    Q, d_terms, d_vectors, rows, q_time, q_head, vectors,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    DISTANCES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the vectors, d_termsᵀ q over tokens and heads: partial sums per program."""
    distance, column = tl.arange(0, DISTANCES), tl.arange(0, WIDTH)
    total = tl.zeros([DISTANCES, WIDTH], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):
        row = start + tl.arange(0, BLOCK).to(tl.int64)
        inside = (row < rows)[:, None]
        index = (row // HEADS * q_time + row % HEADS * q_head)[:, None] + column[None, :]
        q = tl.load(Q + index, mask=inside & (column < DIM)[None, :], other=0.0)
        terms = tl.load(
            d_terms + row[:, None] * DISTANCES + distance[None, :], mask=inside, other=0.0
        )
        total = tl.dot(tl.trans(terms), q, total, input_precision=PRECISION)
    write(d_vectors + tl.program_id(0) * vectors * DIM, total, distance, vectors, DIM, DIM, WIDTH)


@triton.jit
@no_type_check
def weights_of(
    q, k, q2, k2, bias_table, vectors, head, query, key, keys, first, max_distance, max_ahead, low,
    high, scale,
    SPAN: tl.constexpr, DISTANCES: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    ROTATE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """softmax(q · (k + vectors[key − query]) · scale + bias_table[key − query]) over visible keys.

    Fully masked rows are zeros.
    """
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if ROTATE:
        scores += tl.dot(q2, tl.trans(k2), input_precision=PRECISION)
    ahead = key[None, :] - query[:, None]
    if DISTANCES:
        scores += terms_by_distance(q, vectors, ahead - first, max_distance, max_ahead, PRECISION)
    scores *= scale
    if SPAN:
        scores += tl.load(bias_table + head * (2 * SPAN) + SPAN + ahead)
    scores = tl.where(
        visible(ahead, key[None, :], keys, low, high, LOW, HIGH), scores, float("-inf")
    )
    row_max = tl.max(scores, 1)
    weights = tl.exp2(scores - tl.where(row_max == float("-inf"), 0.0, row_max)[:, None])
    total = tl.sum(weights, 1)
    return weights / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
@no_type_check
def forward_tile(
    Q, K, V, Out, bias_table, vectors, cos, sin, head, queries, keys, q_time, k_time, v_time,
    o_time, first, max_distance, max_ahead, low, high, scale,
    TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    OUT_WIDTH: tl.constexpr, SPAN: tl.constexpr, DISTANCES: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr, ROTATE: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Forward pass of one sentence and head."""
    row = tl.arange(0, TILE)
    if ROTATE:
        q, q2 = read_rotated(Q, row, queries, q_time, cos, sin, WIDTH // 2, STEP, GAP)
        k, k2 = read_rotated(K, row, keys, k_time, cos, sin, WIDTH // 2, STEP, GAP)
    else:
        q = read(Q, row, queries, q_time, DIM, WIDTH)
        k = read(K, row, keys, k_time, DIM, WIDTH)
        q2, k2 = q, k
    a = q
    if DISTANCES:
        a = read(
            vectors, tl.arange(0, DISTANCES), max_distance + max_ahead + 1, DIM, DIM, WIDTH
        ).to(q.dtype)
    v = read(V, row, keys, v_time, OUT, OUT_WIDTH)
    weights = weights_of(
        q, k, q2, k2, bias_table, a, head, row, row, keys, first, max_distance, max_ahead, low,
        high, scale, SPAN, DISTANCES, LOW, HIGH, ROTATE, PRECISION,
    )  # fmt: skip
    context = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    write(Out, context, row, queries, o_time, OUT, OUT_WIDTH)


@triton.jit
@no_type_check
def short_forward(
    Q, K, V, Out, bias_table, vectors, cos, sin, q_starts, q_lengths, k_starts, k_lengths, q_time,
    q_head, k_time, k_head, v_time, v_head, first, max_distance, max_ahead, low, high, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, SMALL: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    SPAN: tl.constexpr, DISTANCES: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    ROTATE: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program per sentence and head; short sentences use a SMALL tile."""
    sequence, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    queries, keys = (
        tl.load(q_lengths + sequence).to(tl.int32),
        tl.load(k_lengths + sequence).to(tl.int32),
    )
    q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
    Q += q_start * q_time + head * q_head
    K += k_start * k_time + (head // GROUP) * k_head
    V += k_start * v_time + (head // GROUP) * v_head
    Out += q_start * (HEADS * OUT) + head * OUT
    if queries > 0:
        if SMALL < TILE and max(queries, keys) <= SMALL:
            forward_tile(
                Q, K, V, Out, bias_table, vectors, cos, sin, head, queries, keys, q_time, k_time,
                v_time, HEADS * OUT, first, max_distance, max_ahead, low, high, scale, SMALL, DIM,
                WIDTH, OUT, OUT_WIDTH, SPAN, DISTANCES, LOW, HIGH, ROTATE, STEP, GAP, PRECISION,
            )  # fmt: skip
        else:
            forward_tile(
                Q, K, V, Out, bias_table, vectors, cos, sin, head, queries, keys, q_time, k_time,
                v_time, HEADS * OUT, first, max_distance, max_ahead, low, high, scale, TILE, DIM,
                WIDTH, OUT, OUT_WIDTH, SPAN, DISTANCES, LOW, HIGH, ROTATE, STEP, GAP, PRECISION,
            )  # fmt: skip


@triton.jit
@no_type_check
def backward_tile(
    Q, K, V, dO, dQ, dK, dV, d_terms, bias_table, vectors, cos, sin, head, queries, keys, q_time,
    k_time, v_time, o_time, dq_time, terms_time, first, max_distance, max_ahead, low, high, scale,
    TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    OUT_WIDTH: tl.constexpr, SPAN: tl.constexpr, DISTANCES: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr, ROTATE: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of q, k and v of one sentence and head; returns those of the scores."""
    row = tl.arange(0, TILE)
    HALF: tl.constexpr = WIDTH // 2
    if ROTATE:
        q, q2 = read_rotated(Q, row, queries, q_time, cos, sin, HALF, STEP, GAP)
        k, k2 = read_rotated(K, row, keys, k_time, cos, sin, HALF, STEP, GAP)
    else:
        q = read(Q, row, queries, q_time, DIM, WIDTH)
        k = read(K, row, keys, k_time, DIM, WIDTH)
        q2, k2 = q, k
    a = q
    if DISTANCES:
        a = read(
            vectors, tl.arange(0, DISTANCES), max_distance + max_ahead + 1, DIM, DIM, WIDTH
        ).to(q.dtype)
    v = read(V, row, keys, v_time, OUT, OUT_WIDTH)
    d_out = read(dO, row, queries, o_time, OUT, OUT_WIDTH)
    weights = weights_of(
        q, k, q2, k2, bias_table, a, head, row, row, keys, first, max_distance, max_ahead, low,
        high, scale, SPAN, DISTANCES, LOW, HIGH, ROTATE, PRECISION,
    )  # fmt: skip
    d_value = tl.dot(tl.trans(weights.to(v.dtype)), d_out, input_precision=PRECISION)
    write(dV, d_value, row, keys, o_time, OUT, OUT_WIDTH)
    d_weights = tl.dot(d_out, tl.trans(v), input_precision=PRECISION)
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None])
    d_scores = tl.where((row < queries)[:, None], d_scores, 0.0)
    d_products = d_scores * (scale * 0.6931471805599453)
    d_low = d_products.to(q.dtype)
    if ROTATE:
        one = tl.dot(d_low, k, input_precision=PRECISION)
        other = tl.dot(d_low, k2, input_precision=PRECISION)
        write_rotated_back(dQ, one, other, row, queries, dq_time, cos, sin, HALF, STEP, GAP)
        d_low = tl.trans(d_low)
        one = tl.dot(d_low, q, input_precision=PRECISION)
        other = tl.dot(d_low, q2, input_precision=PRECISION)
        write_rotated_back(dK, one, other, row, keys, dq_time, cos, sin, HALF, STEP, GAP)
    else:
        d_key = tl.dot(tl.trans(d_low), q, input_precision=PRECISION)
        write(dK, d_key, row, keys, dq_time, DIM, WIDTH)
        d_query = tl.dot(d_low, k, input_precision=PRECISION)
        if DISTANCES:
            terms = gradients_by_distance(
                d_products, row, first, max_distance, max_ahead, TILE, DISTANCES
            ).to(q.dtype)
            write(d_terms, terms, row, queries, terms_time, DISTANCES, DISTANCES)
            d_query = tl.dot(terms, a, d_query, input_precision=PRECISION)
        write(dQ, d_query, row, queries, dq_time, DIM, WIDTH)
    return d_scores


@triton.jit
@no_type_check
def short_backward(
    Q, K, V, dO, dQ, dK, dV, d_tiles, d_terms, bias_table, vectors, cos, sin, q_starts, q_lengths,
    k_starts, k_lengths, batch, q_time, q_head, k_time, k_head, v_time, v_head, first, max_distance,
    max_ahead, low, high, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, SPAN: tl.constexpr,
    DISTANCES: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, ROTATE: tl.constexpr,
    STEP: tl.constexpr, GAP: tl.constexpr, PRECISION: tl.constexpr, BIAS_GRADIENT: tl.constexpr,
):  # fmt: skip
    """One program per head and sentence (several sentences with BIAS_GRADIENT).

    A bias table depends on key − query only, so score gradients are summed tile by tile and along
    diagonals at the end, in torch. dK and dV are stored per query head and summed later.
    """
    chunk, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    last, stride = chunk + 1, 1  # without a loop the compiler needs fewer registers
    if BIAS_GRADIENT:
        last, stride = batch, tl.num_programs(0) // HEADS
    total = tl.zeros([TILE, TILE], tl.float32)
    for sequence in range(chunk, last, stride):
        queries, keys = (
            tl.load(q_lengths + sequence).to(tl.int32),
            tl.load(k_lengths + sequence).to(tl.int32),
        )
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        q, k = Q + q_start * q_time + head * q_head, K + k_start * k_time + (head // GROUP) * k_head
        v, d_out = (
            V + k_start * v_time + (head // GROUP) * v_head,
            dO + q_start * (HEADS * OUT) + head * OUT,
        )
        dq, dk = (
            dQ + q_start * (HEADS * DIM) + head * DIM,
            dK + k_start * (HEADS * DIM) + head * DIM,
        )
        dv, terms = (
            dV + k_start * (HEADS * OUT) + head * OUT,
            d_terms + (q_start * HEADS + head) * DISTANCES,
        )
        tile = backward_tile(
            q, k, v, d_out, dq, dk, dv, terms, bias_table, vectors, cos, sin, head, queries, keys,
            q_time, k_time, v_time, HEADS * OUT, HEADS * DIM, HEADS * DISTANCES, first,
            max_distance, max_ahead, low, high, scale, TILE, DIM, WIDTH, OUT, OUT_WIDTH, SPAN,
            DISTANCES, LOW, HIGH, ROTATE, STEP, GAP, PRECISION,
        )  # fmt: skip
        if BIAS_GRADIENT:
            total += tile
    if BIAS_GRADIENT:
        index = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
        tl.store(d_tiles + tl.program_id(0).to(tl.int64) * (TILE * TILE) + index, total)
