"""Attention of short sequences: a whole sentence of one head is one tile, so each number is read once and written once.

Softmax is computed anew in the backward pass: nothing is kept but the inputs.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.shaw import slopes_by_distance, terms_by_distance
from regard.attention.backends.kernels.tiles import read, read_turned, visible, write, write_turned_back


@triton.jit
@no_type_check
def weights_of(
    q, k, q2, k2, line, vectors, head, query, key, keys, first, reach, far, low, high, scale,
    SPAN: tl.constexpr, SPOTS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, TURN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """softmax(q · (k + vectors[key − query]) · scale + line[key − query]) over the keys that are visible.

    Rows that see nothing are zeros.
    """
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if TURN:
        scores += tl.dot(q2, tl.trans(k2), input_precision=PRECISION)
    ahead = key[None, :] - query[:, None]
    if SPOTS:
        scores += terms_by_distance(q, vectors, ahead - first, reach, far, PRECISION)
    scores *= scale
    if SPAN:
        scores += tl.load(line + head * (2 * SPAN) + SPAN + ahead)
    scores = tl.where(visible(ahead, key[None, :], keys, low, high, LOW, HIGH), scores, float("-inf"))
    top = tl.max(scores, 1)
    weights = tl.exp2(scores - tl.where(top == float("-inf"), 0.0, top)[:, None])
    total = tl.sum(weights, 1)
    return weights / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
@no_type_check
def forward_tile(
    Q, K, V, Out, line, vectors, cos, sin, head, queries, keys, q_time, k_time, v_time, o_time, first, reach, far,
    low, high, scale,
    TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    SPAN: tl.constexpr, SPOTS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, TURN: tl.constexpr,
    STEP: tl.constexpr, GAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One sentence, one head."""
    row = tl.arange(0, TILE)
    if TURN:
        q, q2 = read_turned(Q, row, queries, q_time, cos, sin, WIDTH // 2, STEP, GAP)
        k, k2 = read_turned(K, row, keys, k_time, cos, sin, WIDTH // 2, STEP, GAP)
    else:
        q = read(Q, row, queries, q_time, DIM, WIDTH)
        k = read(K, row, keys, k_time, DIM, WIDTH)
        q2, k2 = q, k
    a = q
    if SPOTS:
        a = read(vectors, tl.arange(0, SPOTS), reach + far + 1, DIM, DIM, WIDTH).to(q.dtype)
    v = read(V, row, keys, v_time, OUT, OUT_WIDTH)
    weights = weights_of(
        q, k, q2, k2, line, a, head, row, row, keys, first, reach, far, low, high, scale, SPAN, SPOTS, LOW, HIGH, TURN,
        PRECISION,
    )  # fmt: skip
    context = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    write(Out, context, row, queries, o_time, OUT, OUT_WIDTH)


@triton.jit
@no_type_check
def short_forward(
    Q, K, V, Out, line, vectors, cos, sin, q_starts, q_lengths, k_starts, k_lengths,
    q_time, q_head, k_time, k_head, v_time, v_head, first, reach, far, low, high, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, SMALL: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, SPAN: tl.constexpr, SPOTS: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, TURN: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A program for each sentence and head; sentences that fit into a SMALL tile take one."""
    sequence, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    queries, keys = tl.load(q_lengths + sequence).to(tl.int32), tl.load(k_lengths + sequence).to(tl.int32)
    q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
    Q += q_start * q_time + head * q_head
    K += k_start * k_time + (head // GROUP) * k_head
    V += k_start * v_time + (head // GROUP) * v_head
    Out += q_start * (HEADS * OUT) + head * OUT
    if queries > 0:
        if SMALL < TILE and max(queries, keys) <= SMALL:
            forward_tile(
                Q, K, V, Out, line, vectors, cos, sin, head, queries, keys, q_time, k_time, v_time, HEADS * OUT,
                first, reach, far, low, high, scale, SMALL, DIM, WIDTH, OUT, OUT_WIDTH, SPAN, SPOTS, LOW, HIGH, TURN,
                STEP, GAP, PRECISION,
            )  # fmt: skip
        else:
            forward_tile(
                Q, K, V, Out, line, vectors, cos, sin, head, queries, keys, q_time, k_time, v_time, HEADS * OUT,
                first, reach, far, low, high, scale, TILE, DIM, WIDTH, OUT, OUT_WIDTH, SPAN, SPOTS, LOW, HIGH, TURN,
                STEP, GAP, PRECISION,
            )  # fmt: skip


@triton.jit
@no_type_check
def backward_tile(
    Q, K, V, dO, dQ, dK, dV, d_terms, line, vectors, cos, sin, head, queries, keys, q_time, k_time, v_time, o_time,
    dq_time, terms_time, first, reach, far, low, high, scale,
    TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    SPAN: tl.constexpr, SPOTS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, TURN: tl.constexpr,
    STEP: tl.constexpr, GAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One sentence, one head: gradients of queries, keys and values; gives back those of the scores."""
    row = tl.arange(0, TILE)
    HALF: tl.constexpr = WIDTH // 2
    if TURN:
        q, q2 = read_turned(Q, row, queries, q_time, cos, sin, HALF, STEP, GAP)
        k, k2 = read_turned(K, row, keys, k_time, cos, sin, HALF, STEP, GAP)
    else:
        q = read(Q, row, queries, q_time, DIM, WIDTH)
        k = read(K, row, keys, k_time, DIM, WIDTH)
        q2, k2 = q, k
    a = q
    if SPOTS:
        a = read(vectors, tl.arange(0, SPOTS), reach + far + 1, DIM, DIM, WIDTH).to(q.dtype)
    v = read(V, row, keys, v_time, OUT, OUT_WIDTH)
    d_out = read(dO, row, queries, o_time, OUT, OUT_WIDTH)
    weights = weights_of(
        q, k, q2, k2, line, a, head, row, row, keys, first, reach, far, low, high, scale, SPAN, SPOTS, LOW, HIGH, TURN,
        PRECISION,
    )  # fmt: skip
    d_value = tl.dot(tl.trans(weights.to(v.dtype)), d_out, input_precision=PRECISION)
    write(dV, d_value, row, keys, o_time, OUT, OUT_WIDTH)
    d_weights = tl.dot(d_out, tl.trans(v), input_precision=PRECISION)
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None])
    d_scores = tl.where((row < queries)[:, None], d_scores, 0.0)
    steep = d_scores * (scale * 0.6931471805599453)
    slope = steep.to(q.dtype)
    if TURN:
        one, other = tl.dot(slope, k, input_precision=PRECISION), tl.dot(slope, k2, input_precision=PRECISION)
        write_turned_back(dQ, one, other, row, queries, dq_time, cos, sin, HALF, STEP, GAP)
        slope = tl.trans(slope)
        one, other = tl.dot(slope, q, input_precision=PRECISION), tl.dot(slope, q2, input_precision=PRECISION)
        write_turned_back(dK, one, other, row, keys, dq_time, cos, sin, HALF, STEP, GAP)
    else:
        write(dK, tl.dot(tl.trans(slope), q, input_precision=PRECISION), row, keys, dq_time, DIM, WIDTH)
        d_query = tl.dot(slope, k, input_precision=PRECISION)
        if SPOTS:
            terms = slopes_by_distance(steep, row, first, reach, far, TILE, SPOTS).to(q.dtype)
            write(d_terms, terms, row, queries, terms_time, SPOTS, SPOTS)
            d_query = tl.dot(terms, a, d_query, input_precision=PRECISION)
        write(dQ, d_query, row, queries, dq_time, DIM, WIDTH)
    return d_scores


@triton.jit
@no_type_check
def short_backward(
    Q, K, V, dO, dQ, dK, dV, d_tiles, d_terms, line, vectors, cos, sin, q_starts, q_lengths, k_starts, k_lengths,
    batch, q_time, q_head, k_time, k_head, v_time, v_head, first, reach, far, low, high, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, SPAN: tl.constexpr, SPOTS: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, TURN: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr,
    PRECISION: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """A program for some sentences (one, unless a line learns) and a head.

    A line depends on key − query alone, so the gradients of all scores may be added up tile upon tile (KEEP) and
    summed along diagonals once, at the end, elsewhere. dK and dV are written for every head; groups are added after.
    """
    chunk, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    last, stride = chunk + 1, 1  # so that the compiler sees no loop: what it would keep for the next turn costs room
    if KEEP:
        last, stride = batch, tl.num_programs(0) // HEADS
    kept = tl.zeros([TILE, TILE], tl.float32)
    for sequence in range(chunk, last, stride):
        queries, keys = tl.load(q_lengths + sequence).to(tl.int32), tl.load(k_lengths + sequence).to(tl.int32)
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        q, k = Q + q_start * q_time + head * q_head, K + k_start * k_time + (head // GROUP) * k_head
        v, d_out = V + k_start * v_time + (head // GROUP) * v_head, dO + q_start * (HEADS * OUT) + head * OUT
        dq, dk = dQ + q_start * (HEADS * DIM) + head * DIM, dK + k_start * (HEADS * DIM) + head * DIM
        dv, terms = dV + k_start * (HEADS * OUT) + head * OUT, d_terms + (q_start * HEADS + head) * SPOTS
        tile = backward_tile(
            q, k, v, d_out, dq, dk, dv, terms, line, vectors, cos, sin, head, queries, keys, q_time, k_time, v_time,
            HEADS * OUT, HEADS * DIM, HEADS * SPOTS, first, reach, far, low, high, scale, TILE, DIM, WIDTH, OUT,
            OUT_WIDTH, SPAN, SPOTS, LOW, HIGH, TURN, STEP, GAP, PRECISION,
        )  # fmt: skip
        if KEEP:
            kept += tile
    if KEEP:
        place = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
        tl.store(d_tiles + tl.program_id(0).to(tl.int64) * (TILE * TILE) + place, kept)
