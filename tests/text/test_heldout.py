"""The held-out split: no source on both sides, independent of order, never empty."""

import random

import pytest

from regard.text import HeldOutSplit, Pair, collect_stats, group_references
from regard.text.files import CorpusError
from regard.text.heldout import SplitChooser, hash_source


def split_of(sources: list[str], seed: int = 1) -> HeldOutSplit:
    chooser = SplitChooser(seed)
    for source in sources:
        chooser.add(source)
    return chooser.choose()


def named(count: int) -> list[str]:
    return [f"source {i}" for i in range(count)]


def test_hash_by_hand():
    import hashlib

    salt = (5).to_bytes(16, "big")
    expected = hashlib.blake2b("é".encode(), digest_size=8, salt=salt).digest()
    assert hash_source("e\u0301", 5) == int.from_bytes(expected, "big")  # NFC first
    assert hash_source("é", 6) != hash_source("é", 5)


@pytest.mark.parametrize("count", [2, 3, 10, 100, 1_000, 4_000])
@pytest.mark.parametrize("seed", range(4))
def test_size_of_the_held_out_set(count: int, seed: int):
    split = split_of(named(count), seed)
    held = sum(map(split.is_held_out, named(count)))
    least, most = max(1, count / 50), max(1, count / 10, min(20, count / 2))
    assert least <= held <= most


def test_held_out_set_has_at_most_some_thousands():
    chooser = SplitChooser(1)
    chooser._counts = [
        500_000 // 2 ** (i + 1) for i in range(65)
    ]  # the expected counts of half a million sources
    chooser._lowest, chooser._highest = 0, 1
    share = chooser.choose().threshold / 2**64
    assert 2_000 <= 500_000 * share <= 4_000


def test_split_is_independent_of_order():
    sources = named(500)
    shuffled = random.Random(0).sample(sources, 500)
    assert split_of(sources) == split_of(shuffled)


def test_growing_corpus_keeps_its_split():
    before, after = split_of(named(5_000)), split_of(named(5_300))
    assert before == after
    larger = split_of(named(40_000))
    assert {s for s in named(5_000) if larger.is_held_out(s)} <= {
        s for s in named(5_000) if before.is_held_out(s)
    }


def test_no_source_is_on_both_sides():
    pairs = [Pair(f"s{i % 300}", f"t{i}") for i in range(1000)] + [
        Pair("e\u0301", "x"),
        Pair("é", "y"),
    ]
    split = split_of([pair.source for pair in pairs])
    train, held = list(split.training_pairs(pairs)), list(split.held_out_pairs(pairs))
    assert len(train) + len(held) == len(pairs)
    assert held
    assert not {pair.source for pair in train} & {pair.source for pair in held}
    assert split.is_held_out("é") == split.is_held_out("e\u0301")


def test_corpus_that_cannot_be_split():
    with pytest.raises(
        CorpusError,
        match=r"^cannot hold out pairs of one source; give a held-out file, or more pairs$",
    ):
        split_of(["a", "a"])
    with pytest.raises(CorpusError, match=r"^cannot hold out pairs of an empty corpus; "):
        split_of([])


def test_group_references_by_hand():
    pairs = [
        Pair("tomato", "A"),
        Pair("potato", "C"),
        Pair("tomato", "B"),
        Pair("tomato", "A"),
        Pair("é", "x"),
    ]
    pairs.append(Pair("e\u0301", "y"))
    assert group_references(pairs) == {"tomato": ["A", "B"], "potato": ["C"], "é": ["x", "y"]}


def test_stats_count_split_and_sample_training_pairs():
    pairs = [Pair(f"source {i}", f"target {i}") for i in range(1000)]
    stats = collect_stats(iter(pairs), seed=3)
    assert stats.pairs == 1000
    assert stats.split == split_of([pair.source for pair in pairs], 3)
    train = list(stats.split.training_pairs(pairs))
    assert stats.sources == [pair.source for pair in train]
    assert stats.targets == [pair.target for pair in train]
    whole = collect_stats(pairs, seed=3, hold_out=False)
    assert whole.split is None
    assert len(whole.sources) == 1000
