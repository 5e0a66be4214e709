"""Vectors by distance in a tile (Shaw et al. 2018, eq. 4): one product with every vector, then each key finds its own.

Row i of the product holds a number for each distance from −reach to far; key j takes that of clip(j − i, −reach, far).
`far` is the reach too, or less where a mask hides what lies ahead and nobody needs the rest.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from typing import no_type_check

import triton
import triton.language as tl

from regard.attention.backends.kernels.tiles import write


@triton.jit
@no_type_check
def terms_by_distance(q, vectors, ahead, reach, far, PRECISION: tl.constexpr):
    """q · vectors[clip(ahead, −reach, far)]: a number for each query and key of a tile."""
    terms = tl.dot(q, tl.trans(vectors), input_precision=PRECISION)
    return tl.gather(terms, tl.minimum(tl.maximum(ahead, -reach), far) + reach, 1)


@triton.jit
@no_type_check
def slopes_by_distance(slope, row, first, reach, far, TILE: tl.constexpr, SPOTS: tl.constexpr):
    """The gradient of the product, from that of the scores: at each distance that of the one key which stands there,
    at either end that of all keys from there on."""
    spot = tl.arange(0, SPOTS)[None, :]
    key = (row + first - reach)[:, None] + spot
    inside = (key >= 0) & (key < TILE) & (spot > 0) & (spot < reach + far)
    near = tl.where(inside, tl.gather(slope, tl.minimum(tl.maximum(key, 0), TILE - 1), 1), 0.0)
    ahead = row[None, :] - row[:, None] - first
    before = tl.sum(tl.where(ahead <= -reach, slope, 0.0), 1)[:, None]
    after = tl.sum(tl.where(ahead >= far, slope, 0.0), 1)[:, None]
    return near + tl.where(spot == 0, before, 0.0) + tl.where(spot == reach + far, after, 0.0)


@triton.jit
@no_type_check
def vector_slopes(
    Q, d_terms, d_vectors, rows, q_time, q_head, vectors, HEADS: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, SPOTS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The vectors' gradient, d_termsᵀ q over all tokens and heads: each program adds up its part of them."""
    spot, column = tl.arange(0, SPOTS), tl.arange(0, WIDTH)
    total = tl.zeros([SPOTS, WIDTH], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):
        row = start + tl.arange(0, BLOCK).to(tl.int64)
        inside = (row < rows)[:, None]
        place = (row // HEADS * q_time + row % HEADS * q_head)[:, None] + column[None, :]
        q = tl.load(Q + place, mask=inside & (column < DIM)[None, :], other=0.0)
        terms = tl.load(d_terms + row[:, None] * SPOTS + spot[None, :], mask=inside, other=0.0)
        total = tl.dot(tl.trans(terms), q, total, input_precision=PRECISION)
    write(d_vectors + tl.program_id(0) * vectors * DIM, total, spot, vectors, DIM, DIM, WIDTH)
