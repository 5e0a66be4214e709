"""Repeated pairs: the same counts and examples as dictionaries of all pairs give."""

import random
from collections import Counter

import numpy as np
import pytest

from regard.text import repeated_pairs
from regard.text.reading import Pair
from regard.text.repeated_pairs import RepeatCounts, RepeatedPairs


def by_dictionary(pairs: list[Pair], most: int) -> tuple[RepeatCounts, list[Pair], list[Pair]]:
    """Counts and examples from the texts themselves."""
    lines: Counter[Pair] = Counter()
    targets: dict[str, set[str]] = {}
    duplicates, conflicts = [], []
    for pair in pairs:
        known = targets.setdefault(pair.source, set())
        if lines[pair]:
            duplicates.append(pair)
        elif len(known) == 1:
            conflicts.append(pair)
        lines[pair] += 1
        known.add(pair.target)
    lost = 0.0
    for source in (source for source, found in targets.items() if len(found) > 1):
        counts = [lines[Pair(source, target)] for target in targets[source]]
        lost += 1 - max(counts) / sum(counts)
    counts = RepeatCounts(len(targets), len(duplicates), len(conflicts), lost)
    return counts, duplicates[:most], conflicts[:most]


@pytest.mark.parametrize(("sources", "targets"), [(1, 1), (1, 40), (60, 3), (2_000, 2), (10**9, 9)])
@pytest.mark.parametrize("block", [1, 7, 64])
def test_counts_equal_those_of_dictionaries(sources, targets, block, monkeypatch):
    monkeypatch.setattr(repeated_pairs, "BLOCK_PAIRS", block)
    monkeypatch.setattr(repeated_pairs, "CHUNK_KEYS", 16)
    draw = random.Random(f"{sources} {targets}")
    pairs = [Pair(f"s{draw.randrange(sources)}", f"t{draw.randrange(targets)}") for _ in range(600)]
    found = RepeatedPairs(3)
    for pair in pairs[:300]:
        found.add(pair)
    found.counts()  # may be asked for at any time
    for pair in pairs[300:]:
        found.add(pair)
    counts = found.counts()
    expected, duplicates, conflicts = by_dictionary(pairs, 3)
    assert (counts.sources, counts.duplicates, counts.conflicts) == (
        expected.sources,
        expected.duplicates,
        expected.conflicts,
    )
    assert counts.lost == pytest.approx(expected.lost)
    assert (found.duplicates, found.conflicts) == (duplicates, conflicts)


def test_no_pairs():
    assert RepeatedPairs(3).counts() == RepeatCounts()


def test_a_pair_takes_eight_bytes():
    found = RepeatedPairs(3)
    for number in range(100_000):
        found.add(Pair(f"s{number}", "t"))
    found.counts()
    (keys,) = found._runs
    assert (keys.nbytes, found._block) == (800_000, [])
    assert (np.diff(keys.view(np.uint64)) > 0).all()
