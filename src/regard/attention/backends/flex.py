"""Backend `flex`: torch's FlexAttention, which compiles bias and mask into one kernel.

It skips fully masked blocks. On a GPU it is compiled. On a CPU it runs unfused and forward only,
which is useful to test a bias or mask in the form that a kernel sees.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.attention.cache import Padded
from regard.attention.masks import Everything, Mask, PaddingMask, everything
from regard.attention.reference import Parts
from regard.axes import Contexts, Offset, Site

_MIN_DIM = 16  # the smallest tile of a tensor core


def cannot(
    parts: Parts,
    example: Tensor | None = None,
    mask: Mask = everything,
    offset: Offset = 0,
    *others: Tensor,
) -> str | None:
    """Why FlexAttention cannot run this attention, or None."""
    if not parts.score.is_dot:
        return f"it supports dot-product scores only, not {type(parts.score).__name__}"
    if not parts.normaliser.is_softmax:
        return f"it normalises with softmax only, not {type(parts.normaliser).__name__}"
    if parts.dropout.p and parts.dropout.training:
        return f"it supports attention without dropout only, and dropout is {parts.dropout.p}"
    if example is None:
        return None
    differentiable = any(x.requires_grad for x in (example, *others, *parts.parameters()))
    if example.device.type == "cpu" and torch.is_grad_enabled() and differentiable:
        return "on a CPU it computes no gradients (run it under torch.no_grad())"
    if example.is_cuda and example.shape[-1] < _MIN_DIM:
        return f"on a GPU it needs a dim of at least {_MIN_DIM}, and dim is {example.shape[-1]}"
    return None


def run(
    parts: Parts, queries: Padded, keys: Padded, values: Padded, mask: Mask, offset: Offset
) -> Contexts:
    """Run the attention with FlexAttention."""
    q, k, scale = parts.score.as_dot(queries.tensor, keys.tensor)
    q, k, v = (x.contiguous() for x in (q, k, values.tensor))
    if keys.lengths is not None:
        mask = mask & PaddingMask(keys.lengths)
    sizes = (q.shape[0], q.shape[2], k.shape[2])
    build = _cached_block_mask if isinstance(offset, int) else _block_mask
    context: Tensor = _kernel(q.device.type)(
        q,
        k,
        v,
        score_mod=_score_mod(parts, queries.tensor, offset),
        block_mask=build(mask, sizes, offset, q.device),
        scale=scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )
    return context


def _site(offset: Offset) -> Callable[[Tensor, Tensor, Tensor, Tensor], Site]:
    def site(batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Site:
        start = offset[batch] if isinstance(offset, Tensor) else offset
        return Site(batch, head, row + start, key, row)

    return site


def _score_mod(parts: Parts, queries: Tensor, offset: Offset) -> Any:
    if parts.bias is None:
        return None
    bias, site = parts.bias.bind(queries), _site(offset)
    return lambda score, batch, head, row, key: bias(score, site(batch, head, row, key))


def _block_mask(
    mask: Mask, sizes: tuple[int, int, int], offset: Offset, device: torch.device
) -> BlockMask | None:
    if mask == Everything():
        return None
    batch, rows, keys = sizes
    site = _site(offset)
    return create_block_mask(
        lambda b, h, row, key: mask(site(b, h, row, key)),
        batch,
        None,
        rows,
        keys,
        device=device.type,
    )


# Building a block mask costs more than attending, and all layers share one.
_cached_block_mask = lru_cache(maxsize=64)(_block_mask)


@cache
def _kernel(device: str) -> Callable[..., Any]:
    if device == "cuda":
        return torch.compile(flex_attention)

    def eager(*arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that this is unfused, which is intended
            return flex_attention(*arguments, **options)

    return eager
