"""The held-out split: the text of a source alone decides whether it is held out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from regard.text.files import CorpusError
from regard.text.reading import Pair
from regard.text.tokenizers import nfc

BITS = 64
# Size of the held-out set: 2 % of the pairs, at most 2,000; of a small corpus 5 %, at most 20.
SHARE = 1 / 50
MAX_PAIRS = 2_000
MIN_PAIRS = 20


@dataclass(frozen=True)
class HeldOutSplit:
    """A source is held out if the hash of its NFC text and the seed is below `threshold`.

    A source is therefore never on both sides, whatever its targets. The split does not change when
    lines move or are added, needs no memory, and is stored as two numbers.
    """

    seed: int
    threshold: int

    def is_held_out(self, source: str) -> bool:
        """Whether this source is held out."""
        return hash_source(source, self.seed) < self.threshold

    def training_pairs(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs of the training set."""
        return (pair for pair in pairs if not self.is_held_out(pair.source))

    def held_out_pairs(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs of the held-out set."""
        return (pair for pair in pairs if self.is_held_out(pair.source))


class SplitChooser:
    """Collects the hashes of all sources and chooses the smallest sufficient held-out share.

    The share is a power of one half, so a growing corpus keeps its split until it has about
    doubled.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._counts = [0] * (BITS + 1)  # by number of leading zero bits
        self._lowest = 1 << BITS
        self._highest = -1

    def add(self, source: str) -> None:
        """Count one pair with this source."""
        hashed = hash_source(source, self.seed)
        self._counts[BITS - hashed.bit_length()] += 1
        self._lowest = min(self._lowest, hashed)
        self._highest = max(self._highest, hashed)

    def choose(self) -> HeldOutSplit:
        """The split, with at least one source on each side."""
        total = sum(self._counts)
        if self._lowest >= self._highest:
            sources = "one source" if total else "an empty corpus"
            raise CorpusError(
                f"cannot hold out pairs of {sources}; give a held-out file, or more pairs"
            )
        wanted = max(1, min(MAX_PAIRS, max(total * SHARE, min(MIN_PAIRS, total / 20))))
        for halvings in range(BITS, 1, -1):
            held_out = sum(self._counts[halvings:])
            if wanted <= held_out <= total / 4:
                return HeldOutSplit(self.seed, 1 << (BITS - halvings))
        # A tiny corpus: hold out the source with the lowest hash.
        return HeldOutSplit(self.seed, self._lowest + 1)


class Overlap:
    """Records which held-out sources also occur in the training pairs."""

    def __init__(self, sources: Iterable[str]) -> None:
        self.sources = {nfc(source) for source in sources}
        self.found: set[str] = set()

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Pass the pairs through and record overlaps."""
        for pair in pairs:
            if self.sources and (source := nfc(pair.source)) in self.sources:
                self.found.add(source)
            yield pair

    def warnings(self) -> list[str]:
        """A warning if there is an overlap, because such sources measure memorisation, too."""
        if not self.found:
            return []
        counts = f"{len(self.found):,} of {len(self.sources):,} held-out sources"
        what = "also occur in the training data; they partly measure memorisation"
        return [f"warning: {counts} {what}"]


@lru_cache(maxsize=2)  # the split and the training sources ask for the same one
def hash_source(source: str, seed: int) -> int:
    """A uniform 64-bit hash of a source."""
    hashed = _seeded_hash(seed).copy()
    hashed.update(nfc(source).encode())
    return int.from_bytes(hashed.digest(), "big")


@cache
def _seeded_hash(seed: int) -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=BITS // 8, salt=seed.to_bytes(16, "big", signed=True))


def group_references(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """Each source with all its distinct targets (its references), in order of appearance."""
    grouped: dict[str, dict[str, None]] = {}
    for source, target in pairs:
        grouped.setdefault(nfc(source), {})[nfc(target)] = None
    return {source: list(targets) for source, targets in grouped.items()}
