"""Additive attention: scores v · tanh(q + k) from kernels, the rest by the definition.

The query × key × dim tensor exists in registers only, a slice at a time. The kernels read queries
and keys transposed, (batch · head, dim, time): each step of the loop takes one dim of a tile's
queries and keys and adds their outer sum, so nothing is reduced across threads. Queries are
processed in strips that the backward pass recomputes, so memory grows linearly with the length.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention.masks import Mask
from regard.attention.normalisers import Normaliser
from regard.attention.reference import Bias, Parts, intermediates
from regard.attention.scores import Additive
from regard.axes import Contexts, GroupedKeys, GroupedValues, Offset, Queries

STRIP = 1 << 23  # scores in memory at a time
TILES = {True: (32, 32, 1, 8), False: (32, 32, 4, 4)}  # by FAST: rows, keys, warps, unroll
GRADIENT_TILES = {
    True: (16, 32, 4, 2),
    False: (16, 16, 4, 2),
}  # dQ and dv: tile, others, dims, warps
KEY_TILES = (16, 16, 4, 1)  # dK alone
_TIMES, _DIMS = 128, 8  # times and dims are padded to multiples, so that loads need no mask


@dataclass
class _FusedParts(Parts):
    """The parts of an attention whose score is computed by a kernel."""

    score: Any
    bias: Bias | None
    normaliser: Normaliser
    dropout: nn.Dropout


def additive_attention(
    parts: Parts,
    queries: Queries,
    keys: GroupedKeys,
    values: GroupedValues,
    mask: Mask,
    offset: Offset,
) -> Contexts:
    """The definition, strip by strip, with scores from a kernel."""
    assert isinstance(parts.score, Additive)
    v = parts.score.v
    fused = _FusedParts(
        lambda q, k: _fused_scores(q, k, v),
        parts.bias,
        parts.normaliser,
        parts.dropout,
    )
    rows = max(16, STRIP // max(1, len(queries) * queries.shape[1] * keys.shape[2]))
    has_dropout = parts.dropout.p > 0 and parts.dropout.training

    def strip(first: int) -> Tensor:
        block = queries[:, :, first : first + rows]
        return intermediates(
            fused, block, keys, values, mask, offset + first, parts.dropout
        ).context

    if rows >= queries.shape[2]:
        return strip(0)
    starts = range(0, queries.shape[2], rows)
    if not torch.is_grad_enabled():
        return torch.cat([strip(first) for first in starts], 2)
    return torch.cat(
        [checkpoint(strip, s, use_reentrant=False, preserve_rng_state=has_dropout) for s in starts],
        2,
    )


class AdditiveScoreFunction(torch.autograd.Function):
    """v · tanh(q + k) for dense queries and keys, with all gradients."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        batch, heads, queries, _ = q.shape
        keys, fast = k.shape[2], _fast(q)
        q_columns, k_columns, padded_v = _columns(q), _columns(k), _pad_v(v)
        scores = q.new_empty(batch, heads, queries, keys)
        rows, columns, warps, unroll = TILES[fast]
        additive_scores[(-(-queries // rows), -(-keys // columns), batch * heads)](
            q_columns, k_columns, padded_v, scores, queries, keys, q_columns.shape[-1],
            k_columns.shape[-1], heads, DIM=padded_v.shape[1], ROWS=rows, KEYS=columns,
            UNROLL=unroll, FAST=fast, num_warps=warps,
        )  # fmt: skip
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        q, k, v = ctx.saved_tensors
        d_scores = gradients[0]
        q_columns, k_columns, padded_v = _columns(q), _columns(k), _pad_v(v)
        dq, dv = _gradients(
            q_columns, k_columns, padded_v, d_scores, q.shape, fast=_fast(q), v_gradient=True
        )
        dk, _ = _gradients(
            k_columns,
            q_columns,
            padded_v,
            d_scores.transpose(-1, -2),
            k.shape,
            fast=_fast(q),
            v_gradient=False,
        )
        d_v = dv.sum((0, 3))[:, : v.shape[1]].to(v.dtype)
        return _rows(dq, q), _rows(dk, k), d_v


_fused_scores: Callable[[Tensor, Tensor, Tensor], Tensor] = AdditiveScoreFunction.apply


def _gradients(
    ones: Tensor,
    others: Tensor,
    v: Tensor,
    d_scores: Tensor,
    shape: torch.Size,
    *,
    fast: bool,
    v_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """The gradient of one side, and the terms of v's gradient: both (batch, head, dim, time)."""
    batch, heads, times = shape[0], shape[1], shape[2]
    gradient = ones.new_empty(batch, heads, v.shape[1], times)
    v_terms = torch.empty_like(gradient) if v_gradient else gradient
    tile, columns, dims, warps = GRADIENT_TILES[fast] if v_gradient else KEY_TILES
    if d_scores.stride(0) != d_scores.stride(1) * heads:
        d_scores = d_scores.contiguous()
    additive_gradients[(-(-times // tile), v.shape[1] // dims, batch * heads)](
        ones, others, v, d_scores, gradient, v_terms, times, d_scores.shape[3], ones.shape[-1],
        others.shape[-1], d_scores.stride(1), d_scores.stride(2), d_scores.stride(3), heads,
        DIM=v.shape[1], TILE=tile, OTHERS=columns, DIMS=dims, V_GRADIENT=v_gradient, FAST=fast,
        num_warps=warps, num_stages=2,
    )  # fmt: skip
    return gradient, v_terms


def _fast(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype != torch.float32


def _columns(x: Tensor) -> Tensor:
    """(batch, head, time, dim) as (batch, head, dim, time) in float32, padded with zeros."""
    times, dims = -x.shape[2] % _TIMES, -x.shape[3] % _DIMS
    return F.pad(x.transpose(-1, -2).float(), (0, times, 0, dims)).contiguous()


def _pad_v(v: Tensor) -> Tensor:
    return F.pad(v.float(), (0, -v.shape[1] % _DIMS)).contiguous()


def _rows(gradient: Tensor, like: Tensor) -> Tensor:
    return gradient.transpose(-1, -2)[..., : like.shape[3]].to(like.dtype)


@triton.jit
@no_type_check
def tanh(x, FAST: tl.constexpr):
    """tanh; FAST uses the hardware instruction, exact to 11 bits: more than bfloat16 has."""
    if FAST:
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1
        )
    return 1.0 - 2.0 / (1.0 + tl.exp2(x * 2.8853900817779268))


@triton.jit
@no_type_check
def additive_scores(
    Q, K, V, S, queries, keys, q_dim, k_dim, heads,
    DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, UNROLL: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """One program per tile of each (batch, head)."""
    query = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    key = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    head_index = tl.program_id(2)
    V += (head_index % heads) * DIM
    q = Q + head_index.to(tl.int64) * DIM * q_dim + query
    k = K + head_index.to(tl.int64) * DIM * k_dim + key
    scores = tl.zeros([ROWS, KEYS], tl.float32)
    for start in range(0, DIM, UNROLL):
        for step in tl.static_range(UNROLL):
            d = start + step
            one, other = tl.load(q + d * q_dim), tl.load(k + d * k_dim)
            scores += tl.load(V + d) * tanh(one[:, None] + other[None, :], FAST)
    S += head_index.to(tl.int64) * queries * keys
    inside = (query < queries)[:, None] & (key < keys)[None, :]
    tl.store(S + query[:, None] * keys + key[None, :], scores.to(S.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def additive_gradients(
    A, B, V, dS, dA, dV, ones, others, a_dim, b_dim, s_map, s_one, s_other, heads,
    DIM: tl.constexpr, TILE: tl.constexpr, OTHERS: tl.constexpr, DIMS: tl.constexpr,
    V_GRADIENT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """dA = Σ_b dS · v · (1 − tanh²(a + b)) for a tile of a and some dims.

    a are queries and b keys, or the reverse. V_GRADIENT: also Σ_b dS · tanh(a + b), which summed
    over a is the gradient of v. FAST subtracts the squares from Σ_b dS at the end: one operation
    less per number, with an error below the resolution of 16 bits.
    """
    a = tl.program_id(0) * TILE + tl.arange(0, TILE)
    d = tl.program_id(1) * DIMS + tl.arange(0, DIMS)
    head_index = tl.program_id(2).to(tl.int64)
    A += head_index * DIM * a_dim
    B += head_index * DIM * b_dim
    dS += head_index * s_map
    one = tl.load(A + d[:, None] * a_dim + a[None, :])[:, :, None]
    d_sum = tl.zeros([DIMS, TILE, OTHERS], tl.float32)
    v_terms = tl.zeros([DIMS, TILE, OTHERS], tl.float32)
    d_total = tl.zeros([TILE, OTHERS], tl.float32)
    for start in range(0, others, OTHERS):
        b = start + tl.arange(0, OTHERS)
        inside = (a < ones)[:, None] & (b < others)[None, :]
        d_score = tl.load(
            dS + a[:, None] * s_one + b[None, :] * s_other, mask=inside, other=0.0
        ).to(tl.float32)
        other = tl.load(B + d[:, None] * b_dim + b[None, :])[:, None, :]
        t = tanh(one + other, FAST)
        first = d_score[None, :, :] * t
        if FAST:
            d_sum -= first * t
            d_total += d_score
        else:
            d_sum += d_score[None, :, :] * (1.0 - t * t)
        if V_GRADIENT:
            v_terms += first
    v = tl.load(V + (tl.program_id(2) % heads) * DIM + d)[:, None]
    result = v * (tl.sum(d_total, 1)[None, :] + tl.sum(d_sum, 2))
    out = head_index * DIM * ones + d[:, None] * ones + a[None, :]
    tl.store(dA + out, result, mask=(a < ones)[None, :])
    if V_GRADIENT:
        tl.store(dV + out, tl.sum(v_terms, 2), mask=(a < ones)[None, :])
