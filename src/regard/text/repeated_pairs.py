"""Repeated pairs, and sources with several targets, in eight bytes per pair.

The key of a pair has 44 bits of its source's hash, then 20 bits of its target's. In a sorted array
of keys, equal pairs are adjacent, and so are the targets of a source. Among two million sources,
two share their 44 bits with probability 0.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, UInt64

from regard.text.reading import Pair

TARGET_BITS = 20
BLOCK_PAIRS = 1 << 14  # kept as text until they are compared with all earlier ones
CHUNK_KEYS = 1 << 18  # counted at once
Keys = UInt64[np.ndarray, " pair"]


@dataclass(frozen=True)
class RepeatCounts:
    """`duplicates`: pairs equal to an earlier one; `conflicts`: sources with several targets;
    `lost`: the sum over conflicts of the share of lines without the most frequent target."""

    sources: int = 0
    duplicates: int = 0
    conflicts: int = 0
    lost: float = 0.0

    def __add__(self, other: RepeatCounts) -> RepeatCounts:
        return RepeatCounts(
            self.sources + other.sources,
            self.duplicates + other.duplicates,
            self.conflicts + other.conflicts,
            self.lost + other.lost,
        )


class RepeatedPairs:
    """Compares each pair of a stream with all earlier ones. `duplicates` and `conflicts` are the
    first `max_examples` of each, with one conflict per source."""

    def __init__(self, max_examples: int) -> None:
        self.duplicates: list[Pair] = []
        self.conflicts: list[Pair] = []
        self._max_examples = max_examples
        self._block: list[Pair] = []
        self._runs: list[Keys] = []  # sorted, each longer than the next

    def add(self, pair: Pair) -> None:
        """Add the next pair."""
        self._block.append(pair)
        if len(self._block) == BLOCK_PAIRS:
            self.flush()

    def flush(self) -> None:
        """Compare the last pairs, so that `duplicates` and `conflicts` are complete."""
        block, self._block = self._block, []
        if not block:
            return
        keys = _keys(block)
        if min(len(self.duplicates), len(self.conflicts)) < self._max_examples:
            self._collect_examples(block, keys)
        keys.sort()
        self._runs.append(keys)
        while len(self._runs) > 1 and len(self._runs[-2]) <= len(self._runs[-1]):
            self._merge_last()

    def counts(self) -> RepeatCounts:
        """The counts of all pairs so far."""
        self.flush()
        while len(self._runs) > 1:
            self._merge_last()
        keys = self._runs[0] if self._runs else np.empty(0, np.uint64)
        return sum(map(_count, _split_between_sources(keys)), RepeatCounts())

    def _merge_last(self) -> None:
        merged = np.concatenate(self._runs[-2:])
        del self._runs[-2:]
        merged.sort()
        self._runs.append(merged)

    def _collect_examples(self, block: list[Pair], keys: Keys) -> None:
        repeated, known = self._seen(keys, 0), self._seen(keys, TARGET_BITS)
        for place in np.flatnonzero(repeated)[: self._max_examples - len(self.duplicates)]:
            self.duplicates.append(block[place])
        for place in np.flatnonzero(known & ~repeated):
            if len(self.conflicts) == self._max_examples:
                return
            if all(block[place].source != earlier.source for earlier in self.conflicts):
                self.conflicts.append(block[place])

    def _seen(self, keys: Keys, dropped_bits: int) -> Bool[np.ndarray, " pair"]:
        """Whether each key occurs earlier, in this block or before, without its lowest bits."""
        bits = np.uint64(dropped_bits)
        values, first, places = np.unique(keys >> bits, return_index=True, return_inverse=True)
        before = np.zeros(len(values), bool)
        for run in self._runs:
            found = np.minimum(np.searchsorted(run, values << bits), len(run) - 1)
            before |= run[found] >> bits == values
        return before[places] | (first[places] < np.arange(len(keys)))


def _keys(pairs: list[Pair]) -> Keys:
    """The keys of some pairs; Python's hashes have 64 random bits."""
    sources = np.array([hash(pair.source) for pair in pairs], np.int64).view(np.uint64)
    targets = np.array([hash(pair.target) for pair in pairs], np.int64).view(np.uint64)
    bits = np.uint64(TARGET_BITS)
    return (sources << bits) | (targets & np.uint64((1 << TARGET_BITS) - 1))


def _split_between_sources(keys: Keys) -> Iterator[Keys]:
    """Parts of the sorted keys, such that all keys of a source are in one part."""
    bits, start = np.uint64(TARGET_BITS), 0
    while start < len(keys):
        end = min(start + CHUNK_KEYS, len(keys)) - 1
        last = keys[end] | np.uint64((1 << TARGET_BITS) - 1)  # no key of this source is higher
        end = int(np.searchsorted(keys, last, side="right"))
        assert end == len(keys) or keys[end] >> bits != keys[end - 1] >> bits
        yield keys[start:end]
        start = end


def _count(keys: Keys) -> RepeatCounts:
    """The counts of sorted keys."""
    pairs, lines = np.unique(keys, return_counts=True)
    _, starts, targets = np.unique(
        pairs >> np.uint64(TARGET_BITS), return_index=True, return_counts=True
    )
    several = targets > 1
    shares = np.maximum.reduceat(lines, starts) / np.add.reduceat(lines, starts)
    lost = float((1 - shares)[several].sum())
    return RepeatCounts(len(starts), len(keys) - len(pairs), int(several.sum()), lost)
