"""Batches of sources to search: by length, with results that do not depend on the batch.

Float32 sums depend slightly on the batch: other shapes use other kernels and another order of
addition. Where a decision hangs on less than that, the source is searched again alone, always in
the same way. All other decisions are the same in any batch, so the output depends on the source
alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.search.hypothesis import Search, SearchResult

BATCH_TOKENS = 4_096  # source tokens searched together
RATIO, EXTRA = 2.0, 20  # an output may have RATIO times the tokens of its source, and EXTRA more


def length_limits(
    lengths: Int[Tensor, " source"], max_length: int | None = None, ratio: float = RATIO
) -> Int[Tensor, " source"]:
    """The maximum output length of each source: ratio · length + EXTRA, at most `max_length`.

    Without a limit, an untrained model would never stop.
    """
    limits = [math.ceil(ratio * length) + EXTRA for length in lengths.tolist()]
    if max_length is not None:
        limits = [min(max_length, limit) for limit in limits]
    return torch.tensor(limits, device=lengths.device)


def length_batches(lengths: Sequence[int], tokens: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices of sources, short to long, in batches of at most `tokens` tokens with padding."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > tokens:  # this one is the longest
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


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
