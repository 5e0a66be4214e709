"""The gradient of a learned bias near the diagonal, where every distance has a number of its own.

Tiles whose keys stand equally far ahead of their queries hold the same distances in the same places. So a program takes
all such tiles, one after the other, adds the gradients of their scores place by place, and writes one tile, whose
diagonals are summed at the end: no tile scatters.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.bands import near_scores
from regard.attention.backends.kernels.tiles import read


@triton.jit
@no_type_check
def near_tiles(
    Q, K, V, dO, tiles, peaks, deltas, line, q_starts, q_lengths, k_starts, k_lengths, tokens, batch, nearest,
    q_time, q_head, k_time, k_head, v_time, v_head, low, high, left, right, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, CHUNKS: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, OUT: tl.constexpr, OUT_WIDTH: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program for each distance between blocks (from `nearest` on), part of the blocks, and head."""
    which, chunk, head = tl.program_id(0) // CHUNKS, tl.program_id(0) % CHUNKS, tl.program_id(1)
    line += head * (right - left + 1)
    kept = tl.zeros([TILE, TILE], tl.float32)
    for sequence in range(batch):
        queries, keys = tl.load(q_lengths + sequence).to(tl.int32), tl.load(k_lengths + sequence).to(tl.int32)
        q_start, k_start = tl.load(q_starts + sequence), tl.load(k_starts + sequence)
        q_rows, k_rows = Q + q_start * q_time + head * q_head, K + k_start * k_time + (head // GROUP) * k_head
        v_rows, d_rows = V + k_start * v_time + (head // GROUP) * v_head, dO + q_start * (HEADS * OUT) + head * OUT
        row = head.to(tl.int64) * tokens + q_start
        shift = nearest + which
        begin = max(-shift, 0)
        begin += (chunk - begin % CHUNKS + CHUNKS) % CHUNKS
        end = min((queries + TILE - 1) // TILE, (keys + TILE - 1) // TILE - shift)
        for block in range(begin, end, CHUNKS):
            query = block * TILE + tl.arange(0, TILE)
            key = (block + shift) * TILE + tl.arange(0, TILE)
            q, k = read(q_rows, query, queries, q_time, DIM, WIDTH), read(k_rows, key, keys, k_time, DIM, WIDTH)
            v = read(v_rows, key, keys, v_time, OUT, OUT_WIDTH)
            d_out = read(d_rows, query, queries, HEADS * OUT, OUT, OUT_WIDTH)
            peak = tl.load(peaks + row + query, mask=query < queries, other=float("inf"))
            delta = tl.load(deltas + row + query, mask=query < queries, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
            ahead = key[None, :] - query[:, None]
            scores = near_scores(
                scores, ahead, key[None, :], keys, line, 0.0, scale, low, high, left, right, BIAS, LOW, HIGH
            )  # fmt: skip
            d_weights = tl.dot(d_out, tl.trans(v), input_precision=PRECISION)
            kept += tl.exp2(scores - peak[:, None]) * (d_weights - delta[:, None])
    place = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    program = head * tl.num_programs(0) + tl.program_id(0)
    tl.store(tiles + program.to(tl.int64) * (TILE * TILE) + place, kept)
