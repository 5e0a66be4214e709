"""Sizes and settings that every launch needs, and what is added up after it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels import LOG2E as LOG2E
from regard.kernels import width as width

LONGEST = 128  # of a sentence that is one tile
_ROOM = 128 * 64 * 2  # bytes of a tile; four of them, and what is made of them, must fit a processor's own memory


class Bounds(NamedTuple):
    """What a mask leaves of key − query, both ends included; `first` is where the first query stands."""

    low: int | None
    high: int | None
    first: int

    @classmethod
    def of(cls, low: int | None, high: int | None, first: int) -> Bounds:
        """Bounds of positions, as bounds of rows: the first query's row is 0 wherever it stands."""
        return cls(None if low is None else low + first, None if high is None else high + first, first)


class Turned(NamedTuple):
    """Cosines and sines (position, pair), and the steps from pair to pair and from a pair's first to its second."""

    waves: tuple[Tensor, Tensor]
    steps: tuple[int, int]

    def since(self, first: int) -> Turned:
        """Those from a position on."""
        cos, sin = self.waves
        return self._replace(waves=(cos[first:], sin[first:])) if first else self


def fits(longest: int, *rows: Tensor, spots: int = 0) -> bool:
    """Whether sentences of up to this length are one tile each, beside a tile of so many vectors by distance."""
    tallest = max(width(longest), spots)
    room = all(tallest * width(x.shape[-1]) * x.element_size() <= _ROOM for x in rows)
    return room and max(longest, spots) <= LONGEST


def reached(reach: int, longest: int, first: int) -> int:
    """The farthest distance up to `reach` that a tile of such sentences has room for."""
    return min(reach, width(longest) - 1 + abs(first))


def precision(tensor: Tensor) -> str:
    """How products are computed: float32 in full, as torch does by default."""
    return "ieee" if tensor.dtype == torch.float32 else "tf32"


def grouped(gradients: Tensor, like: Tensor) -> Tensor:
    """Gradients of every head, added up over the heads that share a group."""
    groups = like.shape[1]
    if gradients.shape[1] == groups:
        return gradients
    return gradients.unflatten(1, (groups, -1)).sum(2)


def along_diagonals(tiles: Tensor) -> Tensor:
    """Sums of (…, size, size) tiles along their diagonals: (…, 2 · size − 1), from column − row = 1 − size upwards."""
    size = tiles.shape[-1]
    skewed = F.pad(tiles.flip(-2), (0, size)).flatten(-2)[..., : size * (2 * size - 1)]
    return skewed.unflatten(-1, (size, 2 * size - 1)).sum(-2)
