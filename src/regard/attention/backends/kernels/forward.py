"""Attention of any length, forward: a block of queries walks over its keys (Dao 2023), band by band (`bands`)."""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.bands import LINE, SLOPE, key_bands, near_scores
from regard.attention.backends.kernels.tiles import places, read, read_turned_in_order, read_whole, write

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def walk_near(
    context, total, top, q, K, V, line, slope, query, settled, resumed, full, end, keys, k_time, v_time, scale,
    low, high, left, right, origin,
    KEYS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Over keys of which some may be hidden and whose biases differ: near the diagonal, and at the sequence's end."""
    KEYED: tl.constexpr = BIAS == SLOPE and HIGH and not LOW and PRECISION != "ieee"
    near = resumed - settled
    for step in tl.range(0, near + end - full, KEYS, num_stages=1 if BIAS == LINE else 2):  # no copies of the line
        start = tl.where(step < near, settled + step, full + step - near)
        key = start + tl.arange(0, KEYS)
        k = read(K, key, keys, k_time, DIM, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        ahead = key[None, :] - query[:, None]
        scores = near_scores(
            scores, ahead, key[None, :], keys, line, slope, scale, low, high, left, right,
            0 if KEYED else BIAS, LOW, HIGH,
        )  # fmt: skip
        if KEYED:
            scores += (slope * (key - origin).to(tl.float32))[None, :]
        higher = tl.maximum(top, tl.max(scores, 1))
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - safe[:, None])
        fade = tl.exp2(top - safe)
        total = total * fade + tl.sum(weights, 1)
        v = read(V, key, keys, v_time, OUT, OUT_WIDTH)
        context = tl.dot(weights.to(v.dtype), v, context * fade[:, None], input_precision=PRECISION)
        top = higher
    return context, total, top


@triton.jit
@no_type_check
def walk_far(
    context, total, top, q, K, V, level, other_level, slope, query, settled, resumed, full, k_time, v_time,
    scale, left, origin,
    KEYS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    BIAS: tl.constexpr, HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Over keys that are all seen and share one bias a side, or one slope: what is equal in a row costs nothing.

    Under a causal mask a slope is a bias of the key alone, for what the query adds is equal in its row. (Not so in
    float32, whose rounding would show the numbers that cancel.)
    """
    k_places = places(K, tl.arange(0, KEYS), k_time, WIDTH)
    v_places = places(V, tl.arange(0, KEYS), v_time, OUT_WIDTH)
    for step in range(0, settled + full - resumed, KEYS):
        start = step
        if not HIGH:
            start = tl.where(step < settled, step, resumed + step - settled)
        k = read_whole(k_places, start.to(tl.int64) * k_time, DIM, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if BIAS == SLOPE:
            incline = slope if HIGH else tl.where(step < settled, slope, -slope)
            scores = scores * scale + (incline * tl.arange(0, KEYS).to(tl.float32))[None, :]
            if HIGH and PRECISION != "ieee":
                shift = slope * (start - origin).to(tl.float32)
            else:
                shift = incline * (start - query - left).to(tl.float32)
            higher = tl.maximum(top, tl.max(scores, 1) + shift)
            weights = tl.exp2(scores - (higher - shift)[:, None])
        else:
            shift = level if HIGH else tl.where(step < settled, level, other_level)
            higher = tl.maximum(top, tl.max(scores, 1) * scale + shift)
            weights = tl.exp2(scores * scale - (higher - shift)[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(weights, 1)
        v = read_whole(v_places, start.to(tl.int64) * v_time, OUT, OUT_WIDTH)
        context = tl.dot(weights.to(v.dtype), v, context * fade[:, None], input_precision=PRECISION)
        top = higher
    return context, total, top


@triton.jit
@no_type_check
def long_forward(
    Q, K, V, Out, peaks, line, slopes, cos, sin, q_starts, q_lengths, k_starts, k_lengths, tokens,
    q_time, q_head, k_time, k_head, v_time, v_head, low, high, left, right, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr, PRECISION: tl.constexpr, TURN: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr,
):  # fmt: skip
    """A program for each block of queries, head and sequence. Keeps log₂ of each row's sum (`peaks`)."""
    first, head, sequence = tl.program_id(0) * ROWS, tl.program_id(1), tl.program_id(2)
    queries, keys = tl.load(q_lengths + sequence).to(tl.int32), tl.load(k_lengths + sequence).to(tl.int32)
    if HIGH:  # the longest walks begin first
        first = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    if first < queries:
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        K += k_start * k_time + (head // GROUP) * k_head
        V += k_start * v_time + (head // GROUP) * v_head
        query = first + tl.arange(0, ROWS)
        Q += q_start * q_time + head * q_head
        if TURN:
            q = read_turned_in_order(Q, query, queries, q_time, cos, sin, WIDTH // 2, STEP, GAP)
        else:
            q = read(Q, query, queries, q_time, DIM, WIDTH)
        level, other_level, slope = 0.0, 0.0, 0.0
        if BIAS == LINE:
            line += head * (right - left + 1)
            level, other_level = tl.load(line), tl.load(line + right - left)
        if BIAS == SLOPE:
            slope = tl.load(slopes + head).to(tl.float32) * LOG2E
        settled, resumed, full, end = key_bands(
            first, keys, low, high, left, right, ROWS, KEYS, BIAS, LOW, HIGH
        )  # fmt: skip
        context = tl.zeros([ROWS, OUT_WIDTH], tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        if not LOW:
            context, total, top = walk_far(
                context, total, top, q, K, V, level, other_level, slope, query, settled, resumed, full, k_time,
                v_time, scale, left, first + left, KEYS, DIM, WIDTH, OUT, OUT_WIDTH, BIAS, HIGH, PRECISION,
            )  # fmt: skip
        context, total, top = walk_near(
            context, total, top, q, K, V, line, slope, query, settled, resumed, full, end, keys, k_time, v_time, scale,
            low, high, left, right, first + left, KEYS, DIM, WIDTH, OUT, OUT_WIDTH, BIAS, LOW, HIGH, PRECISION,
        )  # fmt: skip
        empty = total == 0.0
        peak = tl.where(empty, float("inf"), top + tl.log2(tl.where(empty, 1.0, total)))
        if BIAS == SLOPE and HIGH and not LOW and PRECISION != "ieee":
            peak -= slope * tl.arange(0, ROWS).to(tl.float32)
        tl.store(peaks + head.to(tl.int64) * tokens + q_start + query, peak, mask=query < queries)
        context = context / tl.where(empty, 1.0, total)[:, None]
        Out += q_start * (HEADS * OUT) + head * OUT
        write(Out, context, query, queries, HEADS * OUT, OUT, OUT_WIDTH)
