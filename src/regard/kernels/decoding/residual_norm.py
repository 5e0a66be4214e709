"""What stands between the products of a decoder's step: embedding, residual sum and norm. One kernel each.

The residual stream is kept in float32 whatever the weights are in.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.decoding.buffers import Norm
from regard.kernels.decoding.decode_linear import linear, parted, tile


def embed(
    tokens: Tensor, table: Tensor, places: Tensor | None, time: Tensor, norm: Norm | None
) -> tuple[Tensor, Tensor]:
    """The stream of each row's next token, with the vector of its place added; and it normed, in the table's dtype."""
    rows, size = len(tokens), table.shape[1]
    x, normed = tokens.new_empty(rows, size, dtype=torch.float32), table.new_empty(rows, size)
    weight, bias, eps = (table, None, 0.0) if norm is None else norm[:3]
    embed_rows[(rows,)](
        tokens, table, table if places is None else places, time, x, normed, weight, table if bias is None else bias,
        eps, BEAMS=rows // len(time), SIZE=size, WIDTH=triton.next_power_of_2(size), PLACED=places is not None,
        NORMED=norm is not None, CENTRED=bias is not None, num_warps=_warps(size),
    )  # fmt: skip
    return x, normed


def add(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, norm: Norm | None) -> Tensor:
    """x + y W + b written to x, and it normed; with a norm after the sum, that is what x becomes. No norm: as it is."""
    rows, size = x.shape
    if y.dtype == torch.float32:  # a sum cut into parts is added up here
        change = parted(y, weight, None, tile=tile(*y.shape, size, cut=True))
    else:
        change, bias = linear(y, weight, bias)[None], None
    normed = change.new_empty(rows, size)
    scale, shift, eps, before = (change, None, 0.0, True) if norm is None else norm
    join_rows[(rows,)](
        x, change, change if bias is None else bias, normed, scale, change if shift is None else shift, eps,
        rows * size, SIZE=size, WIDTH=triton.next_power_of_2(size), PARTS=len(change), BIAS=bias is not None,
        BEFORE=before, NORMED=norm is not None, CENTRED=shift is not None, num_warps=_warps(size),
    )  # fmt: skip
    return normed


def _warps(size: int) -> int:
    return max(1, min(8, triton.next_power_of_2(size) // 128))


@triton.jit
@no_type_check
def normed_of(x, weight, bias, eps, here, SIZE: tl.constexpr, CENTRED: tl.constexpr):
    """A row normed."""
    inside = here < SIZE
    if CENTRED:
        x = tl.where(inside, x - tl.sum(x, 0) / SIZE, 0.0)
    scale = 1 / tl.sqrt_rn(tl.sum(x * x, 0) / SIZE + eps)
    x = x * scale * tl.load(weight + here, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        x += tl.load(bias + here, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
@no_type_check
def embed_rows(
    tokens, table, places, time, x, normed, weight, bias, eps,
    BEAMS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, PLACED: tl.constexpr, NORMED: tl.constexpr,
    CENTRED: tl.constexpr,
):  # fmt: skip
    """One row."""
    row, here = tl.program_id(0), tl.arange(0, WIDTH)
    inside, token = here < SIZE, tl.load(tokens + row).to(tl.int64)
    vector = tl.load(table + token * SIZE + here, mask=inside, other=0.0).to(tl.float32)
    if PLACED:
        vector += tl.load(places + tl.load(time + row // BEAMS) * SIZE + here, mask=inside, other=0.0)
    tl.store(x + row * SIZE + here, vector, mask=inside)
    if NORMED:
        vector = normed_of(vector, weight, bias, eps, here, SIZE, CENTRED)
    tl.store(normed + row * SIZE + here, vector.to(normed.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def join_rows(
    x, change, added, normed, weight, bias, eps, step,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, BEFORE: tl.constexpr,
    NORMED: tl.constexpr, CENTRED: tl.constexpr,
):  # fmt: skip
    """One row."""
    row, here = tl.program_id(0), tl.arange(0, WIDTH)
    inside, place = here < SIZE, row * SIZE + here
    vector = tl.load(x + place, mask=inside, other=0.0)
    for part in tl.static_range(PARTS):
        vector += tl.load(change + part * step + place, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        vector += tl.load(added + here, mask=inside, other=0.0)
    if BEFORE:
        tl.store(x + place, vector, mask=inside)
    if NORMED:
        vector = normed_of(vector, weight, bias, eps, here, SIZE, CENTRED)
    if not BEFORE:
        tl.store(x + place, vector, mask=inside)
    tl.store(normed + place, vector.to(normed.dtype.element_ty), mask=inside)
