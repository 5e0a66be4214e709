"""run_search: many sources searched by the fastest engine, results in input order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from regard.inference import continuous_batching
from regard.models import Model
from regard.ragged import Layout, Ragged
from regard.search.batch_invariance import batch_invariant
from regard.search.hypothesis import Search, SearchResult
from regard.search.length_batching import BATCH_TOKENS, RATIO, length_batches, length_limits
from regard.text import END
from regard.threads import search_threads


@torch.inference_mode()
def search_all(
    search: Search,
    model: Model,
    sources: Sequence[Sequence[int]],
    *,
    most: int | None = None,
    ratio: float = RATIO,
    tokens: int = BATCH_TOKENS,
    device: torch.device | str = "cpu",
) -> list[SearchResult]:
    """The search results of each source (ids without END), independent of batch and order.

    Continuous batching on a GPU takes every source it can; the rest is batched by length.
    """
    ended = [[*ids, END] for ids in sources]
    results: dict[int, SearchResult] = {}
    if continuous_batching.cannot(search, model, device) is None:
        lengths = torch.tensor([len(ids) for ids in ended], dtype=torch.long)
        limits = length_limits(lengths, most, ratio)
        results |= continuous_batching.run(search, model, ended, limits.tolist())
    left = [index for index in range(len(ended)) if index not in results]
    for batch in length_batches([len(ended[index]) for index in left], tokens):
        places = [left[i] for i in batch]
        ids = torch.tensor([id for place in places for id in ended[place]], device=device)
        ends = [0, *accumulate(len(ended[place]) for place in places)]
        layout = Layout(torch.tensor(ends, device=device), len(ended[places[-1]]), len(ids))
        source = Ragged.from_layout(ids, layout)  # valid by construction, so not validated again
        limits = length_limits(source.lengths, most, ratio)
        with search_threads(len(places), ids.device).use():
            results |= zip(places, batch_invariant(search, model, source, limits), strict=True)
    return [results[index] for index in range(len(ended))]
