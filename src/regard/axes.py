"""Tensor axes and types of attention, and Site: the coordinates of a query–key pair.

Dense tensors are (batch, head, time, dim); packed tensors are (token, head, dim).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Queries = Float[Tensor, "batch head query dim"]
Keys = Float[Tensor, "batch head key dim"]
GroupedKeys = Float[Tensor, "batch group key dim"]  # one key head serves a group of query heads
Values = Float[Tensor, "batch head key out"]
GroupedValues = Float[Tensor, "batch group key out"]
Contexts = Float[Tensor, "batch head query out"]
Scores = Float[Tensor, "batch head query key"]
Weights = Float[Tensor, "batch head query key"]
Allowed = Bool[Tensor, "#batch #head #query #key"]  # True = may attend; axes of size 1 broadcast
Offset = int | Int[Tensor, " batch"]  # key position of the first query of each row


class Site(NamedTuple):
    """Coordinates of query–key pairs: tensors that broadcast to (batch, head, query, key), or
    scalars in a kernel.

    `query` and `key` are positions in their sequences. `row` is the index of the query in its
    tensor, which differs from its position only when earlier positions are in a cache.
    """

    batch: Tensor
    head: Tensor
    query: Tensor
    key: Tensor
    row: Tensor

    @classmethod
    def grid(cls, queries: Queries, keys: GroupedKeys, offset: Offset = 0) -> Site:
        """The coordinates of all query–key pairs of a dense attention, shaped to broadcast."""
        first = offset.view(-1, 1, 1, 1) if isinstance(offset, Tensor) else offset
        sizes = *queries.shape[:3], keys.shape[2]
        batch, head, row, key = (
            _range_along(axis, size, queries.device) for axis, size in enumerate(sizes)
        )
        return cls(batch, head, row + first, key, row)


def _range_along(axis: int, size: int, device: torch.device) -> Tensor:
    return torch.arange(size, device=device).view([size if i == axis else 1 for i in range(4)])
