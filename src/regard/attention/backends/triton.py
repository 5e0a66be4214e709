"""Backend `triton`: kernels of our own where the libraries have none that is fast: short ragged sentences, learned
biases by distance, additive scores. It reads ragged batches as they are.

Triton itself is imported when a CUDA tensor first asks for a kernel.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from regard.attention.backends.kernels.launch import LONGEST, fits, reached, width
from regard.attention.masks import Both, Causal, Everything, Inside, Mask, Prefix, Window, everything
from regard.attention.padded import Sequences, pad, unpad
from regard.attention.reference import Parts
from regard.attention.scores import Additive, Dot, ScaledDot
from regard.axes import Offset, Site
from regard.ragged import Ragged

_WIDEST = 256
_INSTALLED = find_spec("triton") is not None
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
Span = tuple[int | None, int | None, int | Tensor | None]  # least and greatest key − query, and the first key not seen


def cannot(
    parts: Parts, example: Tensor | None = None, mask: Mask = everything, offset: Offset = 0, *others: Tensor
) -> str | None:
    """Why this attention is beyond these kernels; `others` are examples of its keys and values."""
    additive = isinstance(parts.score, Additive)
    if not (parts.score.is_dot or additive):
        return f"it compares by dot products and additive scores only, and {type(parts.score).__name__} is neither"
    if not additive:
        if not parts.normaliser.is_softmax:
            return f"it normalises dot products with softmax only, not {type(parts.normaliser).__name__}"
        if reason := _strange(parts):
            return reason
        if parts.dropout.p and parts.dropout.training:
            return f"it knows no dropout on weights, and dropout is {parts.dropout.p}"
        if span(mask) is None:
            return f"it hides keys by bounds on their distance only, and {mask} is no such mask"
        if isinstance(offset, Tensor):
            return "it knows one offset for all sequences only, and each has its own"
    if example is None:
        return None
    return _unfit(example, *others) or (None if additive else _too_large(parts.bias, offset, example, *others))


def _strange(parts: Parts) -> str | None:
    """What no kernel knows of a bias."""
    bias, score = parts.bias, parts.score
    if by_query(bias):
        if not isinstance(score, Dot | ScaledDot):
            name, other = type(bias).__name__, type(score).__name__
            return f"it knows {name} beside a plain dot product only, and the score is {other}"
    elif bias is not None and settles(bias) is None and not hasattr(bias, "slopes"):
        return f"it knows biases by distance only, and {type(bias).__name__} is none"
    return None


def _too_large(bias: Any, offset: Any, *examples: Tensor) -> str | None:
    """What keeps a bias by the query off its one kernel."""
    if not by_query(bias):
        return None
    longest = max(example.shape[2] for example in examples)
    spots = width(2 * reached(bias.reach, longest, offset) + 1)
    if fits(longest, *examples, spots=spots):
        return None
    most = f"sentences that are one tile only (at most {LONGEST} tokens, fewer where heads are wide)"
    dim = max(example.shape[-1] for example in examples)
    return f"it knows {type(bias).__name__} over {most}, and the longest has {longest} tokens of dim {dim}"


def _unfit(example: Tensor, *others: Tensor) -> str | None:
    """What keeps these tensors off the kernels."""
    if not example.is_cuda and not interpreted():
        return f"it runs on a CUDA device only, and these tensors are on {example.device.type}"
    if not _INSTALLED:
        return "it needs the package triton, which is not installed"
    if example.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"it computes in float32, bfloat16 and float16 only, and these are {str(example.dtype)[6:]}"
    widest = max(one.shape[-1] for one in (example, *others))  # values may be wider than keys
    if widest > _WIDEST:
        return f"it takes heads of at most {_WIDEST} dims only, and dim is {widest}"
    return None


def interpreted() -> bool:
    """Whether Triton runs on a CPU, by its own interpreter: slow, for tests."""
    return _INTERPRETED


def settles(bias: Any) -> int | None:
    """The distance from which on a bias is one number a side; None where it has none or is no bias by distance."""
    return getattr(bias, "settles", None)


def by_query(bias: Any) -> bool:
    """Whether a bias compares the query with a vector for each distance (Shaw), as it does with its keys."""
    return hasattr(bias, "vectors")


def span(mask: Mask) -> Span | None:
    """What a mask leaves: bounds on key − query, and the first key that is hidden; None if it is not of that kind."""
    if isinstance(mask, Everything):
        return None, None, None
    if isinstance(mask, Causal):
        return None, 0, None
    if isinstance(mask, Window):
        return 1 - mask.width, mask.width - 1, None
    if isinstance(mask, Prefix | Inside):
        return None, None, mask.length if isinstance(mask, Prefix) else mask.lengths
    if not isinstance(mask, Both):
        return None
    one, other = span(mask.one), span(mask.other)
    if one is None or other is None:
        return None
    stops = [stop for stop in (one[2], other[2]) if stop is not None]
    stop = stops[0] if len(stops) == 1 else torch.minimum(*map(torch.as_tensor, stops)) if stops else None
    return _tighter(one[0], other[0], max), _tighter(one[1], other[1], min), stop


def _tighter(one: int | None, other: int | None, choose: Any) -> int | None:
    return choose(one, other) if one is not None and other is not None else other if one is None else one


def run(
    parts: Parts, queries: Sequences, keys: Sequences, values: Sequences, mask: Mask, offset: Offset, turn: Any = None
) -> Any:
    """The attention of the reference, through a kernel; ragged in, ragged out."""
    if isinstance(parts.score, Additive):
        return _additive(parts, queries, keys, values, mask, offset)
    from regard.attention.backends.kernels.dot import dot

    context = dot(parts, queries, keys, values, span(mask), offset, turn)
    if isinstance(queries, Ragged):
        return queries.like(context)
    tensor: Tensor = queries if isinstance(queries, Tensor) else queries.tensor
    return context.unflatten(0, (tensor.shape[0], tensor.shape[2])).transpose(1, 2)


def _additive(
    parts: Parts, queries: Sequences, keys: Sequences, values: Sequences, mask: Mask, offset: Offset
) -> Ragged | Tensor:
    from regard.attention.backends.kernels.attend_additive import additive

    asked, known = pad(queries), pad(keys)
    seen = mask if known.lengths is None else mask & Inside(known.lengths)
    context = additive(parts, asked.tensor, known.tensor, pad(values).tensor, seen, offset)
    return unpad(context, queries.layout) if isinstance(queries, Ragged) else context


def line(bias: Any, reach: int, like: Tensor, first: int = 0) -> Tensor:
    """A bias by distance, written out for each head from −reach to +reach, seen from a query at `first`.

    Its definition is asked once; a learned one is linear in its table, so it is asked what a table of unit rows gives.
    """
    table = getattr(bias, "table", None)
    if table is None:
        return _written(bias, like.shape[1], reach, first, like.device)
    known = _UNITS.setdefault(bias, {})
    place = (reach, first, like.device)
    if place not in known:
        with torch.inference_mode(False), torch.no_grad():  # who asks next may be learning
            rows = torch.eye(table.shape[1], dtype=torch.float32, device=like.device)
            known[place] = torch.func.functional_call(
                bias, {"table": rows}, _places(len(rows), reach, first, like.device)
            )
    return table.float() @ known[place]


_UNITS: WeakKeyDictionary[Any, dict[Any, Tensor]] = WeakKeyDictionary()  # what each bias gave, by reach and first


def _written(bias: Any, heads: int, reach: int, first: int, device: torch.device) -> Tensor:
    zero, site = _places(heads, reach, first, device)
    written: Tensor = bias(zero, site)
    return written.float()


def _places(heads: int, reach: int, first: int, device: torch.device) -> tuple[Tensor, Site]:
    """A score of zero, and every head at every distance."""
    none = torch.zeros((), dtype=torch.long, device=device)
    key = torch.arange(-reach, reach + 1, device=device)
    site = Site(none, torch.arange(heads, device=device)[:, None], none + first, key[None, :], none)
    return torch.zeros((), device=device), site
