"""Corpus statistics in one pass: the number of pairs, the held-out split and a bounded sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from regard.text.heldout import HeldOutSplit, SplitChooser
from regard.text.reading import Pair

T = TypeVar("T")
MAX_CHARACTERS = 16_000_000
MAX_ITEMS = 400_000


class SystematicSample(Generic[T]):
    """A bounded, deterministic sample of a stream: every 2ᵏ-th item, with k as small as possible.

    `items` is the sample; `total` and `characters` count the whole stream.
    """

    def __init__(
        self,
        length: Callable[[T], int],
        max_characters: int = MAX_CHARACTERS,
        max_items: int = MAX_ITEMS,
    ) -> None:
        self.items: list[T] = []
        self.total = 0
        self.characters = 0
        self._length = length
        self._max_characters = max_characters
        self._max_items = max_items
        self._stride = 1
        self._sampled_characters = 0

    def add(self, item: T) -> None:
        """Count the next item of the stream, and sample it if it is due."""
        length = self._length(item)
        if self.total % self._stride == 0:
            self.items.append(item)
            self._sampled_characters += length
            while len(self.items) > 1 and self._is_full():
                self.items = self.items[::2]
                self._stride *= 2
                self._sampled_characters = sum(map(self._length, self.items))
        self.total += 1
        self.characters += length

    def _is_full(self) -> bool:
        return self._sampled_characters > self._max_characters or len(self.items) > self._max_items


def subsample(lines: Iterable[str]) -> list[str]:
    """A bounded sample of lines; all of them if they fit."""
    sample: SystematicSample[str] = SystematicSample(len)
    for line in lines:
        sample.add(line)
    return sample.items


@dataclass(frozen=True)
class CorpusStats:
    """The number of pairs, the held-out split (None: no split) and sampled training texts."""

    pairs: int
    split: HeldOutSplit | None
    sources: list[str]
    targets: list[str]


def collect_stats(pairs: Iterable[Pair], *, seed: int, hold_out: bool = True) -> CorpusStats:
    """Read all pairs once in bounded memory. The samples, which exclude held-out text, are for
    `choose_tokenizer` and `train_tokenizer`.
    """
    sample: SystematicSample[Pair] = SystematicSample(
        lambda pair: len(pair.source) + len(pair.target)
    )
    chooser = SplitChooser(seed)
    for pair in pairs:
        sample.add(pair)
        if hold_out:
            chooser.add(pair.source)
    split = chooser.choose() if hold_out else None
    training = [
        pair for pair in sample.items if split is None or not split.is_held_out(pair.source)
    ]
    sources = [pair.source for pair in training]
    return CorpusStats(sample.total, split, sources, [pair.target for pair in training])
