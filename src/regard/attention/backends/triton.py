"""Backend `triton`: our own kernels for cases where no library kernel is fast.

These are short ragged sentences, learned biases by distance, and additive scores. It reads ragged
batches without padding. Triton is imported when a CUDA tensor first needs a kernel.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from regard.attention.backends.kernels.launch import (
    MAX_TILE,
    distances_in_tile,
    fits_one_tile,
    tile_size,
)
from regard.attention.cache import Sequences, pad, unpad
from regard.attention.masks import Mask, PaddingMask, everything
from regard.attention.reference import Parts
from regard.attention.scores import Additive, Dot, ScaledDot
from regard.axes import Offset, Site
from regard.ragged import Ragged

_MAX_DIM = 256
_INSTALLED = find_spec("triton") is not None
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def cannot(
    parts: Parts,
    example: Tensor | None = None,
    mask: Mask = everything,
    offset: Offset = 0,
    *others: Tensor,
) -> str | None:
    """Why these kernels cannot run this attention, or None; `others`: examples of keys, values."""
    additive = isinstance(parts.score, Additive)
    if not (parts.score.is_dot or additive):
        name = type(parts.score).__name__
        return f"it supports dot-product and additive scores only, not {name}"
    if not additive and (reason := _cannot_dot(parts, mask, offset)):
        return reason
    if example is None:
        return None
    if reason := _cannot_tensors(example, *others):
        return reason
    return None if additive else _too_large(parts.bias, offset, example, *others)


def _cannot_dot(parts: Parts, mask: Mask, offset: Offset) -> str | None:
    """Why the dot-product kernels cannot run these parts, or None."""
    if not parts.normaliser.is_softmax:
        name = type(parts.normaliser).__name__
        return f"it normalises dot products with softmax only, not {name}"
    if reason := _cannot_bias(parts):
        return reason
    if parts.dropout.p and parts.dropout.training:
        return f"it supports attention without dropout only, and dropout is {parts.dropout.p}"
    if mask.bounds() is None:
        return f"it supports masks that bound the distance of keys only, not {mask}"
    if isinstance(offset, Tensor):
        return "it supports one offset for all sequences only, and each has its own"
    return None


def _cannot_bias(parts: Parts) -> str | None:
    """Why the kernels cannot add this bias, or None."""
    bias, score = parts.bias, parts.score
    if bias is None:
        return None
    name = type(bias).__name__
    if not bias.is_additive:
        return f"it supports additive biases only, not {name}"
    if bias.needs_query:
        if not isinstance(score, Dot | ScaledDot):
            other = type(score).__name__
            return f"it supports {name} with a plain dot product only, and the score is {other}"
    elif bias.constant_beyond is None and not bias.has_slopes:
        return f"it supports biases by distance only, not {name}"
    return None


def _too_large(bias: Any, offset: Any, *examples: Tensor) -> str | None:
    """Why a bias that needs the query does not fit its only kernel, or None."""
    if bias is None or not bias.needs_query:
        return None
    longest = max(example.shape[2] for example in examples)
    distances = tile_size(2 * distances_in_tile(bias.max_distance, longest, offset) + 1)
    if fits_one_tile(longest, *examples, distances=distances):
        return None
    dim = max(example.shape[-1] for example in examples)
    return (
        f"it supports {type(bias).__name__} for sentences of one tile only (at most {MAX_TILE} "
        f"tokens, fewer for wide heads), and the longest has {longest} tokens of dim {dim}"
    )


def _cannot_tensors(example: Tensor, *others: Tensor) -> str | None:
    """Why the kernels cannot take these tensors, or None."""
    if not example.is_cuda and not is_interpreted():
        return f"it runs on a CUDA device only, and these tensors are on {example.device.type}"
    if not _INSTALLED:
        return "it needs the package triton, which is not installed"
    if example.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        name = str(example.dtype)[6:]
        return f"it computes in float32, bfloat16 and float16 only, and these are {name}"
    largest = max(one.shape[-1] for one in (example, *others))  # values may be wider than keys
    if largest > _MAX_DIM:
        return f"it supports heads of at most {_MAX_DIM} dims only, and dim is {largest}"
    return None


def is_interpreted() -> bool:
    """Whether Triton runs in its own CPU interpreter: slow, for tests."""
    return _INTERPRETED


def run(
    parts: Parts,
    queries: Sequences,
    keys: Sequences,
    values: Sequences,
    mask: Mask,
    offset: Offset,
    rotation: Any = None,
) -> Any:
    """Run the attention with a Triton kernel; ragged in, ragged out."""
    if isinstance(parts.score, Additive):
        return _additive(parts, queries, keys, values, mask, offset)
    from regard.attention.backends.kernels.dot_attention import dot_attention

    bounds = mask.bounds()
    assert bounds is not None  # the gate has checked it
    context = dot_attention(parts, queries, keys, values, bounds, offset, rotation)
    if isinstance(queries, Ragged):
        return queries.like(context)
    tensor: Tensor = queries if isinstance(queries, Tensor) else queries.tensor
    return context.unflatten(0, (tensor.shape[0], tensor.shape[2])).transpose(1, 2)


def _additive(
    parts: Parts,
    queries: Sequences,
    keys: Sequences,
    values: Sequences,
    mask: Mask,
    offset: Offset,
) -> Ragged | Tensor:
    from regard.attention.backends.kernels.additive_attention import additive_attention

    q, k = pad(queries), pad(keys)
    visible = mask if k.lengths is None else mask & PaddingMask(k.lengths)
    dense = q.tensor, k.tensor, pad(values).tensor
    context = additive_attention(parts, *dense, visible, offset)
    return unpad(context, queries.layout) if isinstance(queries, Ragged) else context


def bias_by_distance(bias: Any, max_distance: int, like: Tensor, position: int = 0) -> Tensor:
    """A bias as a (head, key) table, for keys from −max_distance to +max_distance.

    `position` is that of the query. A learned bias is linear in its table, so it is evaluated once
    for a table of unit rows, and that result is multiplied by the table.
    """
    if not bias.has_table:
        return _evaluate(bias, like.shape[1], max_distance, position, like.device)
    known = _UNITS.setdefault(bias, {})
    key = (max_distance, position, like.device)
    if key not in known:
        with torch.inference_mode(False), torch.no_grad():  # the cache also serves training
            rows = torch.eye(bias.table.shape[1], dtype=torch.float32, device=like.device)
            sites = _sites(len(rows), max_distance, position, like.device)
            known[key] = torch.func.functional_call(bias, {"table": rows}, sites)
    return bias.table.float() @ known[key]


# The result for unit rows per bias, by max_distance, position and device.
_UNITS: WeakKeyDictionary[Any, dict[Any, Tensor]] = WeakKeyDictionary()


def _evaluate(
    bias: Any, heads: int, max_distance: int, position: int, device: torch.device
) -> Tensor:
    zero, site = _sites(heads, max_distance, position, device)
    table: Tensor = bias(zero, site)
    return table.float()


def _sites(
    heads: int, max_distance: int, position: int, device: torch.device
) -> tuple[Tensor, Site]:
    """A score of zero, and every head at every distance."""
    zero = torch.zeros((), dtype=torch.long, device=device)
    key = torch.arange(-max_distance, max_distance + 1, device=device)
    head = torch.arange(heads, device=device)[:, None]
    return torch.zeros((), device=device), Site(zero, head, zero + position, key[None, :], zero)
