"""Definition of attention: weights = normalise(score(q, k) + bias), output = weights · values.

Every backend, plot and page is tested against this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.attention.masks import Mask
from regard.attention.normalisers import Normaliser
from regard.attention.scores import Score
from regard.axes import (
    Allowed,
    Contexts,
    GroupedKeys,
    GroupedValues,
    Keys,
    Offset,
    Queries,
    Scores,
    Site,
    Values,
    Weights,
)


@runtime_checkable
class Bias(Protocol):
    """A change of scores, usually an added term, by the positions of query and key.

    `bind` gives it the queries first (Shaw needs them). The attributes declare what fused kernels
    can rely on; `regard.positions.BiasPosition` documents them and provides defaults.
    """

    heads: int | None
    constant_beyond: int | None
    is_additive: ClassVar[bool]
    needs_query: ClassVar[bool]
    has_slopes: ClassVar[bool]
    has_table: ClassVar[bool]

    def bind(self, queries: Queries) -> Callable[[Tensor, Site], Tensor]: ...
    def head_slopes(self) -> Tensor | None: ...


@runtime_checkable
class Rotation(Protocol):
    """A position encoding that rotates queries and keys (`regard.positions.RotaryPosition`)."""

    rotated_dims: int
    pairs: str

    def rotate(self, vectors: Tensor, positions: Tensor) -> Tensor: ...


class Parts:
    """The parts of an attention, which every backend reads: the base class of `Attention`."""

    score: Score
    bias: Bias | None
    normaliser: Normaliser
    dropout: nn.Dropout

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The parameters of all parts."""
        raise NotImplementedError


class Intermediates(NamedTuple):
    """Every intermediate result of an attention, in the order of computation."""

    scores: Scores
    biased: Scores
    allowed: Allowed
    weights: Weights
    context: Contexts


def intermediates(
    parts: Parts,
    queries: Queries,
    keys: GroupedKeys,
    values: GroupedValues,
    mask: Mask,
    offset: Offset = 0,
    drop: Callable[[Weights], Weights] = lambda weights: weights,
) -> Intermediates:
    """The definition. The returned `weights` are those before dropout."""
    site = Site.grid(queries, keys, offset)
    keys, values = (expand_kv_heads(grouped, queries.shape[1]) for grouped in (keys, values))
    scores = parts.score(queries, keys)
    biased = scores if parts.bias is None else parts.bias.bind(queries)(scores, site)
    allowed = mask(site)
    weights = parts.normaliser(biased, allowed)
    context = weighted_sum(drop(weights).to(values.dtype), values, allowed)
    return Intermediates(scores, biased, allowed, weights, context)


def weighted_sum(weights: Weights, values: Values, allowed: Allowed) -> Contexts:
    """weights · values, where a masked value has no influence, even if it is NaN or infinite.

    0 · NaN is NaN, so such values become 0, and rows that may attend to one become NaN.
    """
    if torch.compiler.is_exporting():  # no branch on data, and no use for it
        return weights @ values
    finite = values.isfinite()
    if values.device.type == "cpu" and finite.all():  # elsewhere, a branch would be a wait
        return weights @ values
    seen = allowed.to(values.dtype).expand_as(weights) @ (~finite).to(values.dtype)
    return (weights @ values.masked_fill(~finite, 0)).masked_fill(seen > 0, float("nan"))


def expand_kv_heads(grouped: GroupedKeys, heads: int) -> Keys:
    """Repeat each key or value head for all query heads that share it."""
    kv_heads = grouped.shape[1]
    return grouped if kv_heads == heads else grouped.repeat_interleave(heads // kv_heads, dim=1)
