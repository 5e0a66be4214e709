"""Settled: the same answer whatever the batch.

Sums in 32 bits depend a little on the company a row keeps: other shapes, other kernels, other order of addition. Where
a decision hangs on less than that, the source is searched again alone, always in the same way; all other decisions are
the same in any batch. So the answer depends on the source and nothing else.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.search.hypothesis import Found, Search


def settled(search: Search, model: Model, source: Ragged, limits: Int[Tensor, " source"]) -> list[Found]:
    """What the search finds for each source, close calls decided alone."""
    found = search(model, source, limits)
    if len(source) == 1 or not any(some.close for some in found):
        return found
    sequences = source.unbind()
    return [
        search(model, Ragged.of([sequences[i]]), limits[i : i + 1])[0] if some.close else some
        for i, some in enumerate(found)
    ]
