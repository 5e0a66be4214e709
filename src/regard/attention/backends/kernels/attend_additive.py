"""Additive attention as torch knows it: scores by kernel, all else by the definition, a strip of queries at a time.

A strip is computed again in the backward pass, so memory grows with the length and not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention.backends.kernels.additive import additive_scores, additive_slopes
from regard.attention.masks import Mask
from regard.attention.normalisers import Normaliser
from regard.attention.reference import Bias, Parts, steps
from regard.axes import Contexts, GroupedKeys, GroupedValues, Offset, Queries

STRIP = 1 << 23  # scores that are held at a time
TILES = {True: (32, 32, 1, 8), False: (32, 32, 4, 4)}  # FAST or not: rows, keys, warps, dimensions at a time
SLOPES = {True: (16, 32, 4, 2), False: (16, 16, 4, 2)}  # of v and one side, the same: tile, others, dimensions, warps
OTHER = (16, 16, 4, 1)  # of the other side alone
_TIMES, _DIMS = 128, 8  # times and dimensions are filled up to multiples of these, so that loads need no mask


@dataclass
class _Parts:
    """An attention's parts, its score computed by a kernel."""

    score: Any
    bias: Bias | None
    normaliser: Normaliser
    dropout: nn.Dropout
    parameters: Callable[[], Iterator[nn.Parameter]]


def additive(
    parts: Parts, queries: Queries, keys: GroupedKeys, values: GroupedValues, mask: Mask, offset: Offset
) -> Contexts:
    """The definition, strip by strip, with its score computed by a kernel."""
    v = getattr(parts.score, "v")  # noqa: B009 (only this score has one)
    fused = _Parts(lambda q, k: _scores(q, k, v), parts.bias, parts.normaliser, parts.dropout, parts.parameters)
    rows = max(16, STRIP // max(1, len(queries) * queries.shape[1] * keys.shape[2]))
    drops = parts.dropout.p > 0 and parts.dropout.training

    def strip(first: int) -> Tensor:
        some = queries[:, :, first : first + rows]
        return steps(fused, some, keys, values, mask, offset + first, parts.dropout).context

    if rows >= queries.shape[2]:
        return strip(0)
    starts = range(0, queries.shape[2], rows)
    if not torch.is_grad_enabled():
        return torch.cat([strip(first) for first in starts], 2)
    return torch.cat([checkpoint(strip, s, use_reentrant=False, preserve_rng_state=drops) for s in starts], 2)


class Additive(torch.autograd.Function):
    """v · tanh(q + k) of dense queries and keys, with all gradients."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        batch, heads, queries, _ = q.shape
        keys, fast = k.shape[2], _fast(q)
        turned_q, turned_k, wide_v = _turned(q), _turned(k), _wide(v)
        scores = q.new_empty(batch, heads, queries, keys)
        rows, across, warps, unroll = TILES[fast]
        additive_scores[(-(-queries // rows), -(-keys // across), batch * heads)](
            turned_q, turned_k, wide_v, scores, queries, keys, turned_q.shape[-1], turned_k.shape[-1], heads,
            DIM=wide_v.shape[1], ROWS=rows, KEYS=across, UNROLL=unroll, FAST=fast, num_warps=warps,
        )  # fmt: skip
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        q, k, v = ctx.saved_tensors
        d_scores = gradients[0]
        turned_q, turned_k, wide_v = _turned(q), _turned(k), _wide(v)
        dq, dv = _slopes(turned_q, turned_k, wide_v, d_scores, q.shape, fast=_fast(q), keep=True)
        dk, _ = _slopes(turned_k, turned_q, wide_v, d_scores.transpose(-1, -2), k.shape, fast=_fast(q), keep=False)
        d_v = dv.sum((0, 3))[:, : v.shape[1]].to(v.dtype)
        return _back(dq, q), _back(dk, k), d_v


_scores: Callable[[Tensor, Tensor, Tensor], Tensor] = Additive.apply


def _slopes(
    ones: Tensor, others: Tensor, v: Tensor, d_scores: Tensor, shape: torch.Size, *, fast: bool, keep: bool
) -> tuple[Tensor, Tensor]:
    """The gradient of one side, and where asked what v's is made of, both (batch, head, dim, time)."""
    batch, heads, times = shape[0], shape[1], shape[2]
    gradient = ones.new_empty(batch, heads, v.shape[1], times)
    kept = torch.empty_like(gradient) if keep else gradient
    tile, across, dims, warps = SLOPES[fast] if keep else OTHER
    if d_scores.stride(0) != d_scores.stride(1) * heads:
        d_scores = d_scores.contiguous()
    additive_slopes[(-(-times // tile), v.shape[1] // dims, batch * heads)](
        ones, others, v, d_scores, gradient, kept, times, d_scores.shape[3], ones.shape[-1], others.shape[-1],
        d_scores.stride(1), d_scores.stride(2), d_scores.stride(3), heads,
        DIM=v.shape[1], TILE=tile, OTHERS=across, DIMS=dims, KEEP=keep, FAST=fast, num_warps=warps, num_stages=2,
    )  # fmt: skip
    return gradient, kept


def _fast(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype != torch.float32


def _turned(x: Tensor) -> Tensor:
    """(batch, head, time, dim) as (batch, head, dim, time) in float32, filled up with zeros."""
    times, dims = -x.shape[2] % _TIMES, -x.shape[3] % _DIMS
    return F.pad(x.transpose(-1, -2).float(), (0, times, 0, dims)).contiguous()


def _wide(v: Tensor) -> Tensor:
    return F.pad(v.float(), (0, -v.shape[1] % _DIMS)).contiguous()


def _back(gradient: Tensor, like: Tensor) -> Tensor:
    return gradient.transpose(-1, -2)[..., : like.shape[3]].to(like.dtype)
