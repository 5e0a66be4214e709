"""Relative positions: terms added to the score, computed from the distance of query and key."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.axes import Queries, Site
from regard.errors import RegardError, ShapeError
from regard.model_limits import MAX_BUCKETS, MAX_DISTANCE, MAX_HEADS
from regard.positions.absolute import BiasPosition, check_count


class Alibi(BiasPosition):
    """A penalty proportional to the distance, with a fixed slope per head.

    Without a causal mask it is symmetric: an encoder with ALiBi alone cannot distinguish a text
    from its mirror image.
    """

    formula = "s − slope_h · |query − key|"
    paper = "Press et al. 2022, §3"
    is_additive = True
    has_slopes = True

    def __init__(self, heads: int) -> None:
        super().__init__()
        check_count("heads", heads, MAX_HEADS)
        self.heads = heads
        self.register_buffer("slopes", alibi_slopes(heads), persistent=False)

    slopes: Tensor

    def head_slopes(self) -> Float[Tensor, " head"]:
        """The slope of each head."""
        return self.slopes

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        return scores - self.slopes[site.head] * (site.query - site.key).abs()


def alibi_slopes(heads: int) -> Float[Tensor, " head"]:
    """2^(−8/n), 2^(−16/n) … for n a power of two; other n add every second slope of 2n heads."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return torch.tensor(slopes)


class Distance(BiasPosition):
    """A learned number per head and distance; keys beyond `max_distance` share the last one.

    The term is scaled like the dot product, so R is divided by √d as well.
    """

    formula = "s + R[h, clip(key − query, ±max_distance)] / √d"
    paper = "Shaw et al. 2018, simplified to a number per head; Raffel et al. 2020, §2.1"
    is_additive = True
    has_table = True

    def __init__(self, heads: int, dim: int, *, max_distance: int = 128) -> None:
        super().__init__()
        check_count("max_distance", max_distance, MAX_DISTANCE)
        self.heads, self.scale = heads, 1 / math.sqrt(dim)
        self.max_distance = self.constant_beyond = max_distance
        self.table = nn.Parameter(torch.zeros(heads, 2 * max_distance + 1))

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        limit = self.max_distance
        index = (site.key - site.query).clamp(-limit, limit) + limit
        return scores + self.table[site.head, index] * self.scale


class T5(BiasPosition):
    """A learned number per head and distance bucket; buckets widen up to `max_distance`.

    With `causal`, all buckets serve keys before the query; otherwise half of them serve keys after.
    """

    formula = "s + B[h, bucket(key − query)]"
    paper = "Raffel et al. 2020, §2.1"
    is_additive = True
    has_table = True

    def __init__(
        self, heads: int, *, buckets: int = 32, max_distance: int = 128, causal: bool = False
    ) -> None:
        super().__init__()
        check_count("buckets", buckets, MAX_BUCKETS)
        side = buckets if causal else buckets // 2
        if side < 2 or max_distance <= side // 2:
            raise RegardError(
                f"max_distance must exceed the exact buckets; got buckets={buckets}, "
                f"max_distance={max_distance}"
            )
        check_count("max_distance", max_distance, MAX_DISTANCE)
        self.heads, self.buckets = heads, buckets
        self.max_distance = self.constant_beyond = max_distance
        self.causal = causal
        self.table = nn.Parameter(torch.zeros(heads, buckets))

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of `key − query`: exact when small, then logarithmic up to `max_distance`."""
        side = self.buckets if self.causal else self.buckets // 2
        distance = (-ahead).clamp(min=0) if self.causal else ahead.abs()
        exact = side // 2
        ratio = torch.log(distance.clamp(min=1) / exact) / math.log(self.max_distance / exact)
        wide = (exact + (ratio * (side - exact)).long()).clamp(max=side - 1)
        bucket = torch.where(distance < exact, distance, wide)
        return bucket if self.causal else bucket + (ahead > 0) * side

    def forward(self, scores: Tensor, site: Site) -> Tensor:
        return scores + self.table[site.head, self.bucket(site.key - site.query)]


class Shaw(BiasPosition):
    """The query's dot product with a learned vector per distance, shared by all heads."""

    formula = "s + q · A[clip(key − query, ±max_distance)] / √d"
    paper = "Shaw et al. 2018, eq. 4"
    is_additive = True
    needs_query = True

    def __init__(self, dim: int, *, max_distance: int = 16) -> None:
        super().__init__()
        check_count("max_distance", max_distance, MAX_DISTANCE)
        self.max_distance, self.scale = max_distance, 1 / math.sqrt(dim)
        self.table = nn.Parameter(torch.randn(2 * max_distance + 1, dim) / math.sqrt(dim))

    def vectors(self, queries: Tensor) -> Float[Tensor, "distance dim"]:
        """The vector of each distance from −max_distance on, after checking the queries' dim."""
        if queries.shape[-1] != self.table.shape[1]:
            raise ShapeError(
                f"Shaw was built for dim {self.table.shape[1]}; got queries of dim "
                f"{queries.shape[-1]}"
            )
        return self.table

    def bind(self, queries: Queries) -> Callable[[Tensor, Site], Tensor]:
        """Multiply queries and table once; each site then reads its number from the product."""
        vectors, limit = self.vectors(queries).to(queries.dtype), self.max_distance
        terms = torch.einsum("bhqd,rd->bhqr", queries, vectors) * self.scale

        def bias(scores: Tensor, site: Site) -> Tensor:
            index = (site.key - site.query).clamp(-limit, limit) + limit
            return scores + terms[site.batch, site.head, site.row, index]

        return bias
