"""A first look at a corpus: one pass that counts it, splits it and keeps a sample of what is to be learned from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from regard.text.heldout import Split, Splitter
from regard.text.reading import Pair
from regard.text.reservoir import Sample


@dataclass(frozen=True)
class Survey:
    """How many pairs there are, which sources are held out (None: no split), and sample lines of the rest by side."""

    pairs: int
    split: Split | None
    sources: list[str]
    targets: list[str]


def survey(pairs: Iterable[Pair], *, seed: int, hold_out: bool = True) -> Survey:
    """Look at all pairs once, in bounded memory. The samples serve `auto` and `train_tokenizer`; held-out text, which
    nothing may be learned from, is not in them.
    """
    sample: Sample[Pair] = Sample(lambda pair: len(pair.source) + len(pair.target))
    splitter = Splitter(seed)
    for pair in pairs:
        sample.add(pair)
        if hold_out:
            splitter.add(pair.source)
    split = splitter.split() if hold_out else None
    kept = [pair for pair in sample.kept if split is None or not split.held(pair.source)]
    return Survey(sample.total, split, [pair.source for pair in kept], [pair.target for pair in kept])
