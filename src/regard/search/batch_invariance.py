"""Batch invariance: the same output whatever the batch.

Float32 sums depend slightly on the batch: other shapes use other kernels and another order of
addition. Where a decision hangs on less than that, the source is searched again alone, always in
the same way. All other decisions are the same in any batch, so the output depends on the source
alone.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.search.hypothesis import Search, SearchResult


def batch_invariant(
    search: Search, model: Model, source: Ragged, limits: Int[Tensor, " source"]
) -> list[SearchResult]:
    """The results of a search, with near-ties decided by a search of that source alone."""
    results = search(model, source, limits)
    if len(source) == 1 or not any(result.is_close for result in results):
        return results
    sequences = source.unbind()
    return [
        search(model, Ragged.of([sequences[i]]), limits[i : i + 1])[0]
        if result.is_close
        else result
        for i, result in enumerate(results)
    ]
