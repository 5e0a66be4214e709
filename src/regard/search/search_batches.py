"""Search algorithms as a protocol, and batches of sources whose results do not depend on the batch.

Float32 sums depend slightly on the batch: other shapes use other kernels and another order of
addition. Where a decision hangs on less than that, the source is searched again alone, always in
the same way. All other decisions are the same in any batch, so the output depends on the source
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decoding_options import RATIO, length_limit
from regard.models import Model
from regard.ragged import Ragged
from regard.search.hypothesis import SearchResult

BATCH_TOKENS = 4_096  # source tokens searched together


@runtime_checkable
class Search(Protocol):
    """A search algorithm. `limits` is the maximum output length of each source, without END."""

    def __call__(
        self, model: Model, source: Ragged, limits: Int[Tensor, " source"]
    ) -> list[SearchResult]: ...


def length_limits(
    lengths: Int[Tensor, " source"], max_length: int | None = None, ratio: float = RATIO
) -> Int[Tensor, " source"]:
    """The maximum output length of each source, as a tensor."""
    limits = [length_limit(length, max_length, ratio) for length in lengths.tolist()]
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
