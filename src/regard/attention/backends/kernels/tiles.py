"""What the kernels share: reading and writing tiles of packed rows, and who may see whom.

A tile is some rows of one sequence and all dimensions of one head. Softmax runs on powers of two: scales, biases and
slopes come multiplied by log₂ e.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def read(pointer, row, rows, stride, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of a packed tensor; zeros past the last of them and past the last dimension."""
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None]
    if DIM != WIDTH:
        inside = inside & (column < DIM)[None, :]
    return tl.load(pointer + row[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
@no_type_check
def places(pointer, row, stride, WIDTH: tl.constexpr):
    """Where the numbers of some rows lie: worked out once, before a loop that moves on by whole blocks."""
    return pointer + row[:, None] * stride + tl.arange(0, WIDTH)[None, :]


@triton.jit
@no_type_check
def read_whole(places, shift, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """A block of rows that are all there."""
    if DIM == WIDTH:
        return tl.load(places + shift)
    return tl.load(places + shift, mask=(tl.arange(0, WIDTH) < DIM)[None, :], other=0.0)


@triton.jit
@no_type_check
def write(pointer, tile, row, rows, stride, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Rows back into a packed tensor."""
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None]
    if DIM != WIDTH:
        inside = inside & (column < DIM)[None, :]
    tl.store(pointer + row[:, None] * stride + column[None, :], tile.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def read_turned(pointer, row, rows, stride, cos, sin, HALF: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr):
    """Rows turned by their positions, as two tiles: the first and the second coordinates of all pairs.

    The tables of cosines and sines have a row for each that is there.
    """
    pair = tl.arange(0, HALF)
    inside = (row < rows)[:, None]
    place = pointer + row[:, None] * stride + pair[None, :] * STEP
    one = tl.load(place, mask=inside, other=0.0)
    other = tl.load(place + GAP, mask=inside, other=0.0)
    angle = row[:, None] * HALF + pair[None, :]
    c, s = tl.load(cos + angle, mask=inside, other=0.0), tl.load(sin + angle, mask=inside, other=0.0)
    return (one * c - other * s).to(one.dtype), (other * c + one * s).to(one.dtype)


@triton.jit
@no_type_check
def write_turned_back(
    pointer, one, other, row, rows, stride, cos, sin, HALF: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr
):
    """The gradient of `read_turned`: both tiles turned back and written."""
    pair = tl.arange(0, HALF)
    inside = (row < rows)[:, None]
    angle = row[:, None] * HALF + pair[None, :]
    c, s = tl.load(cos + angle, mask=inside, other=0.0), tl.load(sin + angle, mask=inside, other=0.0)
    place = pointer + row[:, None] * stride + pair[None, :] * STEP
    tl.store(place, (one * c + other * s).to(pointer.dtype.element_ty), mask=inside)
    tl.store(place + GAP, (other * c - one * s).to(pointer.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def read_turned_in_order(
    pointer, row, rows, stride, cos, sin, HALF: tl.constexpr, STEP: tl.constexpr, GAP: tl.constexpr
):
    """Turned rows as one tile, the coordinates in the order they have in memory."""
    one, other = read_turned(pointer, row, rows, stride, cos, sin, HALF, STEP, GAP)
    both = tl.join(one, other)
    if GAP != 1:
        both = tl.permute(both, (0, 2, 1))
    return tl.reshape(both, (row.shape[0], 2 * HALF))


@triton.jit
@no_type_check
def visible(ahead, key, keys, low, high, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Whether a query may see a key that stands `ahead` of it: inside the sequence and between the bounds."""
    allowed = (key < keys) & (ahead == ahead)
    if LOW:
        allowed = allowed & (ahead >= low)
    if HIGH:
        allowed = allowed & (ahead <= high)
    return allowed
