"""Attention, defined: weights = normalise(score(queries, keys) + bias), output = weights · values.

Every backend, picture and page is held to this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

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
    Weights,
)


@runtime_checkable
class Bias(Protocol):
    """A term added to scores by where query and key stand. `bind` lets it see the queries first (Shaw needs them)."""

    heads: int | None

    def bind(self, queries: Queries) -> Callable[[Tensor, Site], Tensor]: ...


@runtime_checkable
class Turn(Protocol):
    """A position encoding that turns queries and keys (rotary)."""

    def turn(self, vectors: Tensor, positions: Tensor) -> Tensor: ...


@runtime_checkable
class Parts(Protocol):
    """What an attention is made of."""

    score: Score
    bias: Bias | None
    normaliser: Normaliser
    dropout: nn.Dropout

    def parameters(self) -> Iterator[nn.Parameter]: ...


class Steps(NamedTuple):
    """Every intermediate of an attention, in the order in which they arise."""

    scores: Scores
    biased: Scores
    allowed: Allowed
    weights: Weights
    context: Contexts


def steps(
    parts: Parts,
    queries: Queries,
    keys: GroupedKeys,
    values: GroupedValues,
    mask: Mask,
    offset: Offset = 0,
    drop: Callable[[Weights], Weights] = lambda weights: weights,
) -> Steps:
    """The definition. `weights` are those before anything is dropped."""
    site = Site.grid(queries, keys, offset)
    keys, values = (spread(grouped, queries.shape[1]) for grouped in (keys, values))
    scores = parts.score(queries, keys)
    biased = scores if parts.bias is None else parts.bias.bind(queries)(scores, site)
    allowed = mask(site)
    weights = parts.normaliser(biased, allowed)
    return Steps(scores, biased, allowed, weights, drop(weights).to(values.dtype) @ values)


def spread(grouped: GroupedKeys, heads: int) -> Keys:
    """Each group of keys or values, once for every head it serves."""
    groups = grouped.shape[1]
    return grouped if groups == heads else grouped.repeat_interleave(heads // groups, dim=1)
