"""Shared kernel functions: load and store tiles of packed rows; masks, biases and bands.

A tile is a block of rows of one sequence with all dims of one head. Softmax uses powers of two, so
scales, biases and slopes arrive multiplied by log₂ e.

Bands divide the keys of a block of queries by distance. In far bands, left and right of the
diagonal, the bias is constant (or linear) and no key is masked. Only near bands look up biases and
mask keys. `low` and `high` are the mask's bounds of key − query; from `left` and `right` on the
bias is constant.

Shaw's vectors (Shaw et al. 2018, eq. 4): row i of q · vectorsᵀ has a number per distance from
−max_distance to max_ahead, and key j takes that of clip(j − i, −max_distance, max_ahead).
`max_ahead` is max_distance, or less where a mask hides the keys ahead.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from typing import no_type_check

import triton
import triton.language as tl

TABLE, SLOPE = tl.constexpr(1), tl.constexpr(2)  # kinds of bias; 0: none


@triton.jit
@no_type_check
def read(pointer, row, rows, stride, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Load rows of a packed tensor; zeros beyond the last row and the last dim."""
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None]
    if DIM != WIDTH:
        inside = inside & (column < DIM)[None, :]
    return tl.load(pointer + row[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
@no_type_check
def pointers(pointer, row, stride, WIDTH: tl.constexpr):
    """The addresses of a block of rows: computed once, before a loop over whole blocks."""
    return pointer + row[:, None] * stride + tl.arange(0, WIDTH)[None, :]


@triton.jit
@no_type_check
def read_whole(pointers, shift, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Load a block of rows that lies entirely inside the sequence."""
    if DIM == WIDTH:
        return tl.load(pointers + shift)
    return tl.load(pointers + shift, mask=(tl.arange(0, WIDTH) < DIM)[None, :], other=0.0)


@triton.jit
@no_type_check
def write(pointer, tile, row, rows, stride, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Store rows to a packed tensor."""
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None]
    if DIM != WIDTH:
        inside = inside & (column < DIM)[None, :]
    tl.store(
        pointer + row[:, None] * stride + column[None, :],
        tile.to(pointer.dtype.element_ty),
        mask=inside,
    )


@triton.jit
@no_type_check
def read_rotated(
    pointer, row, rows, stride, cos, sin, HALF: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr
):
    """Load rows rotated by their positions, as two tiles: first and second dims of all pairs.

    The cosine and sine tables have one row per position.
    """
    pair = tl.arange(0, HALF)
    inside = (row < rows)[:, None]
    index = pointer + row[:, None] * stride + pair[None, :] * STEP
    one = tl.load(index, mask=inside, other=0.0)
    other = tl.load(index + GAP, mask=inside, other=0.0)
    angle = row[:, None] * HALF + pair[None, :]
    c, s = (
        tl.load(cos + angle, mask=inside, other=0.0),
        tl.load(sin + angle, mask=inside, other=0.0),
    )
    return (one * c - other * s).to(one.dtype), (other * c + one * s).to(one.dtype)


@triton.jit
@no_type_check
def write_rotated_back(
    pointer,
    one,
    other,
    row,
    rows,
    stride,
    cos,
    sin,
    HALF: tl.constexpr,
    STEP: tl.constexpr,
    GAP: tl.constexpr,
):
    """The gradient of `read_rotated`: rotate both tiles back and store them."""
    pair = tl.arange(0, HALF)
    inside = (row < rows)[:, None]
    angle = row[:, None] * HALF + pair[None, :]
    c, s = (
        tl.load(cos + angle, mask=inside, other=0.0),
        tl.load(sin + angle, mask=inside, other=0.0),
    )
    index = pointer + row[:, None] * stride + pair[None, :] * STEP
    tl.store(index, (one * c + other * s).to(pointer.dtype.element_ty), mask=inside)
    tl.store(index + GAP, (other * c - one * s).to(pointer.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def read_rotated_in_order(
    pointer, row, rows, stride, cos, sin, HALF: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr
):
    """Load rotated rows as one tile, with the dims in memory order."""
    one, other = read_rotated(pointer, row, rows, stride, cos, sin, HALF, STEP, GAP)
    both = tl.join(one, other)
    if GAP != 1:
        both = tl.permute(both, (0, 2, 1))
    return tl.reshape(both, (row.shape[0], 2 * HALF))


@triton.jit
@no_type_check
def visible(ahead, key, keys, low, high, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Whether a query may attend to a key that is `ahead` positions after it."""
    allowed = (key < keys) & (ahead == ahead)
    if LOW:
        allowed = allowed & (ahead >= low)
    if HIGH:
        allowed = allowed & (ahead <= high)
    return allowed


@triton.jit
@no_type_check
def terms_by_distance(q, vectors, ahead, max_distance, max_ahead, PRECISION: tl.constexpr):
    """q · vectors[clip(ahead, −max_distance, max_ahead)] for each query and key of a tile."""
    terms = tl.dot(q, tl.trans(vectors), input_precision=PRECISION)
    return tl.gather(
        terms, tl.minimum(tl.maximum(ahead, -max_distance), max_ahead) + max_distance, 1
    )


@triton.jit
@no_type_check
def gradients_by_distance(
    gradient, row, first, max_distance, max_ahead, TILE: tl.constexpr, DISTANCES: tl.constexpr
):
    """The gradient of the products q · vectors, from that of the scores.

    Each distance receives the gradient of the one key there; both ends sum all keys beyond them.
    """
    distance = tl.arange(0, DISTANCES)[None, :]
    key = (row + first - max_distance)[:, None] + distance
    inside = (key >= 0) & (key < TILE) & (distance > 0) & (distance < max_distance + max_ahead)
    near = tl.where(inside, tl.gather(gradient, tl.minimum(tl.maximum(key, 0), TILE - 1), 1), 0.0)
    ahead = row[None, :] - row[:, None] - first
    before = tl.sum(tl.where(ahead <= -max_distance, gradient, 0.0), 1)[:, None]
    after = tl.sum(tl.where(ahead >= max_ahead, gradient, 0.0), 1)[:, None]
    return (
        near
        + tl.where(distance == 0, before, 0.0)
        + tl.where(distance == max_distance + max_ahead, after, 0.0)
    )


@triton.jit
@no_type_check
def key_bands(
    query, keys, low, high, left, right,
    ROWS: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr,
):  # fmt: skip
    """Bands of keys for a block of queries.

    Far up to `left_end`, near, far from `right_start` to `right_end`, near to `end`.
    """
    end = keys
    right_end = keys // KEYS * KEYS
    if HIGH:
        end = min(keys, max(query + ROWS + high, 0))
        right_end = min(right_end, max(query + high + 1, 0) // KEYS * KEYS)
    if LOW:
        right_end = min(max(query + low, 0) // KEYS * KEYS, end)
    left_end, right_start = right_end, right_end
    if BIAS:
        left_end = min(max(query + left + 1, 0) // KEYS * KEYS, right_end)
        right_start = max(
            min((max(query + ROWS - 1 + right, 0) + KEYS - 1) // KEYS * KEYS, right_end), left_end
        )
        if HIGH:
            right_start = right_end
    if LOW:
        left_end, right_start = right_end, right_end
    return left_end, right_start, right_end, max(end, right_end)


@triton.jit
@no_type_check
def query_bands(
    key, queries, low, high, left, right,
    ROWS: tl.constexpr, KEYS: tl.constexpr, BIAS: tl.constexpr, LOW: tl.constexpr,
    HIGH: tl.constexpr,
):  # fmt: skip
    """Bands of queries for a block of keys.

    Far from `begin` to `near_start`, near, far from `near_end` to `end`.
    """
    begin = 0
    end = queries
    if HIGH:
        begin = max(key - high, 0) // ROWS * ROWS
    if LOW:
        end = min(queries, max(key + KEYS - low, 0))
    near_start, near_end = begin, begin
    if BIAS:
        if not HIGH:
            near_start = max(key + 1 - right, 0) // ROWS * ROWS
        near_end = (max(key + KEYS - 1 - left, 0) + ROWS - 1) // ROWS * ROWS
    if HIGH:
        near_end = max(near_end, (max(key + KEYS - 1 - high, 0) + ROWS - 1) // ROWS * ROWS)
    if LOW:
        near_start, near_end = begin, end
    near_start = min(near_start, end)
    return begin, near_start, max(min(near_end, end), near_start), end


@triton.jit
@no_type_check
def near_scores(
    scores, ahead, key, keys, bias_table, slope, scale, low, high, left, right,
    BIAS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
):  # fmt: skip
    """Scores with scale, bias and mask applied; valid anywhere."""
    scores *= scale
    if BIAS == TABLE:
        scores += tl.load(bias_table + tl.minimum(tl.maximum(ahead, left), right) - left)
    if BIAS == SLOPE:
        scores -= slope * tl.abs(ahead - left).to(tl.float32)
    return tl.where(visible(ahead, key, keys, low, high, LOW, HIGH), scores, float("-inf"))
