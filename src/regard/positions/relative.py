"""Relative positions: terms added to the score by the distance from query to key."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.axes import Queries, Site
from regard.errors import RegardError, ShapeError
from regard.positions.position import Biasing


class Alibi(Biasing):
    """Nearer keys weigh more, each head by its own fixed slope; under a causal mask, and symmetric without one.

    Symmetric, it knows how far but not on which side: an encoder with it alone cannot tell a text from its mirror.
    """

    formula = "s − slope_h · |query − key|"
    paper = "Press et al. 2022, §3"

    def __init__(self, heads: int) -> None:
        super().__init__()
        _at_least_one("heads", heads)
        self.heads = heads
        self.register_buffer("slopes", alibi_slopes(heads), persistent=False)

    slopes: Tensor

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        return scores - self.slopes[site.head] * (site.query - site.key).abs()


def alibi_slopes(heads: int) -> Float[Tensor, " head"]:
    """2^(−8/n), 2^(−16/n) … for n a power of two; between powers, every other slope of the next one is put in."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return torch.tensor(slopes)


class Distance(Biasing):
    """A learned number for each head and distance up to `reach`; all farther keys share the last one.

    The term stands inside the scaling, so R is divided by √d together with the dot product.
    """

    formula = "s + R[h, clip(key − query, ±reach)] / √d"
    paper = "Shaw et al. 2018, simplified to a number a head; Raffel et al. 2020, §2.1"

    def __init__(self, heads: int, dim: int, *, reach: int = 128) -> None:
        super().__init__()
        _at_least_one("reach", reach)
        self.heads, self.reach, self.settles, self.scale = heads, reach, reach, 1 / math.sqrt(dim)
        self.table = nn.Parameter(torch.zeros(heads, 2 * reach + 1))

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        apart = (site.key - site.query).clamp(-self.reach, self.reach) + self.reach
        return scores + self.table[site.head, apart] * self.scale


class T5(Biasing):
    """A learned number for each head and bucket of distances; buckets widen with distance up to `farthest`.

    `causal` spends all buckets on keys before the query; otherwise half of them look ahead.
    """

    formula = "s + B[h, bucket(key − query)]"
    paper = "Raffel et al. 2020, §2.1"

    def __init__(self, heads: int, *, buckets: int = 32, farthest: int = 128, causal: bool = False) -> None:
        super().__init__()
        side = buckets if causal else buckets // 2
        if side < 2 or farthest <= side // 2:
            raise RegardError(f"farthest must be beyond the exact buckets; got buckets={buckets}, farthest={farthest}")
        self.heads, self.buckets, self.farthest, self.causal = heads, buckets, farthest, causal
        self.settles = farthest
        self.table = nn.Parameter(torch.zeros(heads, buckets))

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of a distance `key − query`: exact when near, logarithmic beyond, one for all past `farthest`."""
        side = self.buckets if self.causal else self.buckets // 2
        apart = (-ahead).clamp(min=0) if self.causal else ahead.abs()
        exact = side // 2
        ratio = torch.log(apart.clamp(min=1) / exact) / math.log(self.farthest / exact)
        wide = (exact + (ratio * (side - exact)).long()).clamp(max=side - 1)
        bucket = torch.where(apart < exact, apart, wide)
        return bucket if self.causal else bucket + (ahead > 0) * side

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        return scores + self.table[site.head, self.bucket(site.key - site.query)]


class Shaw(Biasing):
    """The query against a learned vector for each distance up to `reach`, shared by all heads."""

    formula = "s + q · A[clip(key − query, ±reach)] / √d"
    paper = "Shaw et al. 2018, eq. 4"

    def __init__(self, dim: int, *, reach: int = 16) -> None:
        super().__init__()
        _at_least_one("reach", reach)
        self.reach, self.scale = reach, 1 / math.sqrt(dim)
        self.table = nn.Parameter(torch.randn(2 * reach + 1, dim) / math.sqrt(dim))

    def vectors(self, queries: Tensor) -> Float[Tensor, "distance dim"]:
        """What these queries are compared with besides their keys: a vector for each distance, −reach first."""
        if queries.shape[-1] != self.table.shape[1]:
            raise ShapeError(f"Shaw was made for dim {self.table.shape[1]}; got queries of dim {queries.shape[-1]}")
        return self.table

    def bind(self, queries: Queries) -> Callable[[Tensor, Site], Tensor]:
        """One product of queries and table; a place then looks its number up."""
        terms = torch.einsum("bhqd,rd->bhqr", queries, self.vectors(queries).to(queries.dtype)) * self.scale

        def bias(scores: Tensor, site: Site) -> Tensor:
            apart = (site.key - site.query).clamp(-self.reach, self.reach) + self.reach
            return scores + terms[site.batch, site.head, site.row, apart]

        return bias


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise RegardError(f"{name} must be at least 1; got {value}")
