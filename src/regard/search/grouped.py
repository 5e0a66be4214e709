"""Grouped: many sources searched together, like lengths beside each other, answers in the order of the questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor

from regard.models import Model
from regard.ragged import Ragged
from regard.search.hypothesis import Found, Search
from regard.search.settled import settled
from regard.text import END

TOKENS = 4_096  # source tokens searched together


def limits(lengths: Int[Tensor, " source"], most: int | None = None) -> Int[Tensor, " source"]:
    """The most tokens an answer may have: twice its source and some, or `most`. A model that knows nothing yet would
    otherwise talk for ever."""
    usual = 2 * lengths + 20
    return usual if most is None else usual.clamp(max=most)


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
    tokens: int = TOKENS,
    device: torch.device | str = "cpu",
) -> list[Found]:
    """What the search finds for each source (ids without the end), in their order and whatever their company."""
    found: dict[int, Found] = {}
    for group in groups([len(ids) + 1 for ids in sources], tokens):
        ids = torch.tensor([id for place in group for id in (*sources[place], END)], device=device)
        ends = torch.tensor([0, *accumulate(len(sources[place]) + 1 for place in group)], device=device)
        batch = Ragged(ids, ends)
        found |= zip(group, settled(search, model, batch, limits(batch.lengths, most)), strict=True)
    return [found[place] for place in range(len(sources))]
