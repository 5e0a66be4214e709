"""Grouped: many sources searched together, like lengths beside each other, answers in the order of the questions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor

from regard.inference.batching_session import flies, fly, passengers
from regard.inference.fast_transformer import Swift
from regard.models import Model
from regard.ragged import Layout, Ragged
from regard.search.batch_invariance import settled
from regard.search.beam import Beam
from regard.search.greedy import Greedy
from regard.search.hypothesis import Found, Search
from regard.text import END

TOKENS = 4_096  # source tokens searched together
RATIO, SOME = 2.0, 20  # how many times as long as its source an answer may be, and some more


def limits(lengths: Int[Tensor, " source"], most: int | None = None, ratio: float = RATIO) -> Int[Tensor, " source"]:
    """The most tokens an answer may have: so many times its source and some, or `most`. A model that knows nothing yet
    would otherwise talk for ever."""
    usual = [math.ceil(ratio * length) + SOME for length in lengths.tolist()]
    return torch.tensor(usual if most is None else [min(most, limit) for limit in usual], device=lengths.device)


def groups(lengths: Sequence[int], tokens: int = TOKENS) -> Iterator[list[int]]:
    """Places in a list of sources, the short before the long, cut into groups of at most so many tokens."""
    group: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (len(group) + 1) * lengths[place] > tokens:  # as the longest of them, which comes last
            yield group
            group = []
        group.append(place)
    if group:
        yield group


@torch.inference_mode()
def search_all(
    search: Search,
    model: Model,
    sources: Sequence[Sequence[int]],
    *,
    most: int | None = None,
    ratio: float = RATIO,
    tokens: int = TOKENS,
    device: torch.device | str = "cpu",
) -> list[Found]:
    """What the search finds for each source (ids without the end), in their order and whatever their company."""
    found: dict[int, Found] = {}
    if flies(search, model, device):
        found |= flown(search, model, [[*ids, END] for ids in sources], most, ratio)  # type: ignore[arg-type]
    left = [place for place in range(len(sources)) if place not in found]
    for group in groups([len(sources[place]) + 1 for place in left], tokens):
        places = [left[i] for i in group]
        ids = torch.tensor([id for place in places for id in (*sources[place], END)], device=device)
        ends = torch.tensor([0, *accumulate(len(sources[place]) + 1 for place in places)], device=device)
        longest = len(sources[places[-1]]) + 1
        batch = Ragged.arranged(ids, Layout(ends, longest, len(ids)))  # known to be good, so not looked at again
        found |= zip(places, settled(search, model, batch, limits(batch.lengths, most, ratio)), strict=True)
    return [found[place] for place in range(len(sources))]


def flown(
    search: Greedy | Beam, model: Swift, sources: Sequence[Sequence[int]], most: int | None, ratio: float
) -> Mapping[int, Found]:
    """What a flight finds for each source (its end included) that it can take, by its place in the list."""
    allowed = limits(torch.tensor([len(ids) for ids in sources], dtype=torch.long), most, ratio)
    return fly(search, model, passengers(search, sources, allowed.tolist()))
