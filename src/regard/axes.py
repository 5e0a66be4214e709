"""The axes every tensor is written in, and a Site: one place where a query meets a key.

Dense order is (batch, head, time, dim) everywhere; a packed tensor is (token, head, dim).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Queries = Float[Tensor, "batch head query dim"]
Keys = Float[Tensor, "batch head key dim"]
GroupedKeys = Float[Tensor, "batch group key dim"]  # a group of keys serves several heads
GroupedValues = Float[Tensor, "batch group key out"]
Contexts = Float[Tensor, "batch head query out"]
Scores = Float[Tensor, "batch head query key"]
Weights = Float[Tensor, "batch head query key"]
Allowed = Bool[Tensor, "#batch #head #query #key"]  # True = may attend; axes of size 1 stand for all
Offset = int | Int[Tensor, " batch"]  # where the first query of each row stands among the keys


class Site(NamedTuple):
    """Where a query meets a key: five tensors that broadcast to (batch, head, query, key); scalars in a kernel.

    `query` and `key` are positions in their sequence. `row` is the query's place in its tensor, which differs
    from its position only when earlier positions are in a cache.
    """

    batch: Tensor
    head: Tensor
    query: Tensor
    key: Tensor
    row: Tensor

    @classmethod
    def grid(cls, queries: Queries, keys: GroupedKeys, offset: Offset = 0) -> Site:
        """All places of a dense attention at once, shaped to broadcast."""
        first = offset.view(-1, 1, 1, 1) if isinstance(offset, Tensor) else offset
        sizes = *queries.shape[:3], keys.shape[2]
        batch, head, row, key = (_along(axis, size, queries.device) for axis, size in enumerate(sizes))
        return cls(batch, head, row + first, key, row)


def _along(axis: int, size: int, device: torch.device) -> Tensor:
    return torch.arange(size, device=device).view([size if one == axis else 1 for one in range(4)])
