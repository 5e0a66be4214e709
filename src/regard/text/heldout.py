"""The held-out part: which sources are kept for measuring, decided by their text alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from regard.text.files import CorpusError
from regard.text.reading import Pair
from regard.text.unicode import nfc

BITS = 64
SHARE, MOST, FEW = 1 / 50, 2_000, 20  # about 2 %, no more than some thousands, and twenty when that is few


@dataclass(frozen=True)
class Split:
    """A source is held out when the hash of its NFC text and the seed lies below `threshold`.

    So a source is never on both sides, whatever its targets; and the split stays when lines move or are added, needs no
    memory and is two numbers to write down.
    """

    seed: int
    threshold: int

    def held(self, source: str) -> bool:
        """Whether this source is held out."""
        return place(source, self.seed) < self.threshold

    def train(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs to learn from."""
        return (pair for pair in pairs if not self.held(pair.source))

    def held_out(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs to measure with."""
        return (pair for pair in pairs if self.held(pair.source))


class Splitter:
    """Watches all sources go by and then says where to split: as few as will do, in steps of a half.

    The share is a power of a half, so that a growing corpus keeps its split until it has about doubled.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._halvings = [0] * (BITS + 1)
        self._lowest, self._highest = 1 << BITS, -1

    def add(self, source: str) -> None:
        """One more pair has this source."""
        here = place(source, self.seed)
        self._halvings[BITS - here.bit_length()] += 1
        self._lowest, self._highest = min(self._lowest, here), max(self._highest, here)

    def split(self) -> Split:
        """The split: at least one source on each side."""
        total = sum(self._halvings)
        if self._lowest >= self._highest:
            sources = "one source" if total else "no pairs at all"
            raise CorpusError(f"nothing can be held out of {sources}; give a held-out file, or more pairs")
        wanted = max(1, min(MOST, max(total * SHARE, min(FEW, total / 20))))
        for halvings in range(BITS, 1, -1):
            held = sum(self._halvings[halvings:])
            if wanted <= held <= total / 4:
                return Split(self.seed, 1 << (BITS - halvings))
        return Split(self.seed, self._lowest + 1)  # tiny: the one source that hashes lowest


class Overlap:
    """Watches pairs go by and notes which of the held-out sources are among them."""

    def __init__(self, sources: Iterable[str]) -> None:
        self.sources = {nfc(source) for source in sources}
        self.found: set[str] = set()

    def watched(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The same pairs."""
        for pair in pairs:
            if self.sources and (source := nfc(pair.source)) in self.sources:
                self.found.add(source)
            yield pair

    def said(self) -> list[str]:
        """What people should know of it: a model may answer from memory what it has learned."""
        if not self.found:
            return []
        count, every = len(self.found), len(self.sources)
        return [f"{count:,} of {every:,} held-out sources are learned from, too: there memory is measured as well"]


def place(source: str, seed: int) -> int:
    """Where a source falls among 2⁶⁴ places."""
    hashed = _started(seed).copy()
    hashed.update(nfc(source).encode())
    return int.from_bytes(hashed.digest(), "big")


@cache
def _started(seed: int) -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=BITS // 8, salt=seed.to_bytes(16, "big", signed=True))


def variants(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """Every source with all its different targets, each of which counts as right, in order of appearance."""
    grouped: dict[str, dict[str, None]] = {}
    for source, target in pairs:
        grouped.setdefault(nfc(source), {})[nfc(target)] = None
    return {source: list(targets) for source, targets in grouped.items()}
