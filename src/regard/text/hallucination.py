"""Data hallucination: new training pairs whose shared stems are random (Anastasopoulos & Neubig
2019).

If a source and its target share a substring, as a lemma and its inflected form do, the substring is
replaced on both sides by the same random symbols. The model learns what surrounds a stem (tags,
affixes), and to copy stems that it has never seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

Symbols = Sequence[str]
SymbolPair = tuple[Symbols, Symbols]

MIN_SHARED = 3  # symbols of a shared substring that counts as (part of) a stem
MAX_CHANGE = 2  # symbols by which a new stem may be shorter or longer
UNIGRAM_SHARE = 0.25  # of the symbols that are drawn regardless of the one before


def shared_stretches(source: Symbols, target: Symbols) -> list[tuple[int, int, int]]:
    """(start in the source, start in the target, length) of the substrings that both share."""
    matcher = SequenceMatcher(None, source, target, autojunk=False)
    return [(a, b, n) for a, b, n in matcher.get_matching_blocks() if n >= MIN_SHARED]


class Hallucinator:
    """Draws new pairs from `pairs`; the symbols of a stem follow the bigrams of their stems."""

    def __init__(self, pairs: Iterable[SymbolPair], seed: int) -> None:
        self._random = random.Random(seed)
        self._pairs: list[tuple[Symbols, Symbols, list[tuple[int, int, int]]]] = []
        self._symbols: list[str] = []
        self._following: dict[str, list[str]] = {}
        self.count = 0  # pairs seen
        for source, target in pairs:
            self.count += 1
            if stretches := shared_stretches(source, target):
                self._pairs.append((source, target, stretches))
            for start, _, length in stretches:
                self._symbols.extend(source[start : start + length])
                for i in range(max(start, 1), start + length):
                    self._following.setdefault(source[i - 1], []).append(source[i])

    @property
    def share(self) -> float:
        """The share of pairs with a shared stem."""
        return len(self._pairs) / max(self.count, 1)

    def draw(self, count: int) -> Iterator[tuple[list[str], list[str]]]:
        """`count` new pairs; none if no pair shares a stem."""
        for _ in range(count if self._pairs else 0):
            yield self._change(*self._random.choice(self._pairs))

    def _change(
        self, source: Symbols, target: Symbols, stretches: list[tuple[int, int, int]]
    ) -> tuple[list[str], list[str]]:
        """The pair with new symbols in each shared stretch; its first and last symbol may stay."""
        new_source, new_target = list(source), list(target)
        for start, other, length in reversed(stretches):
            first, last = self._random.randint(0, 1), length - self._random.randint(0, 1)
            size = max(1, last - first + self._random.randint(-MAX_CHANGE, MAX_CHANGE))
            before = new_source[start + first - 1] if start + first else ""
            stem = self._stem(before, size)
            new_source[start + first : start + last] = stem
            new_target[other + first : other + last] = stem
        return new_source, new_target

    def _stem(self, before: str, size: int) -> list[str]:
        stem: list[str] = []
        for _ in range(size):
            following = self._following.get(before)
            if not following or self._random.random() < UNIGRAM_SHARE:
                following = self._symbols
            before = self._random.choice(following)
            stem.append(before)
        return stem
