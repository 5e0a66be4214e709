"""The held-out part: no source on both sides, the same whatever the order, some of it however small the corpus."""

import random

import pytest

from regard.text import Pair, Split, survey, variants
from regard.text.files import CorpusError
from regard.text.heldout import Splitter, place


def split_of(sources: list[str], seed: int = 1) -> Split:
    splitter = Splitter(seed)
    for source in sources:
        splitter.add(source)
    return splitter.split()


def named(count: int) -> list[str]:
    return [f"source {i}" for i in range(count)]


def test_a_place_by_hand():
    import hashlib

    salt = (5).to_bytes(16, "big")
    expected = hashlib.blake2b("é".encode(), digest_size=8, salt=salt).digest()
    assert place("e\u0301", 5) == int.from_bytes(expected, "big")  # NFC first
    assert place("é", 6) != place("é", 5)


@pytest.mark.parametrize("count", [2, 3, 10, 100, 1_000, 4_000])
@pytest.mark.parametrize("seed", range(4))
def test_some_but_not_much_is_held_out(count: int, seed: int):
    split = split_of(named(count), seed)
    held = sum(map(split.held, named(count)))
    least, most = max(1, count / 50), max(1, count / 10, min(20, count / 2))
    assert least <= held <= most


def test_at_most_some_thousands():
    places = Splitter(1)
    places._halvings = [500_000 // 2 ** (i + 1) for i in range(65)]  # as half a million sources would fall
    places._lowest, places._highest = 0, 1
    share = places.split().threshold / 2**64
    assert 2_000 <= 500_000 * share <= 4_000


def test_order_does_not_matter():
    sources = named(500)
    shuffled = random.Random(0).sample(sources, 500)
    assert split_of(sources) == split_of(shuffled)


def test_growing_keeps_the_split_until_it_shrinks():
    before, after = split_of(named(5_000)), split_of(named(5_300))
    assert before == after
    larger = split_of(named(40_000))
    assert {s for s in named(5_000) if larger.held(s)} <= {s for s in named(5_000) if before.held(s)}


def test_no_source_is_on_both_sides():
    pairs = [Pair(f"s{i % 300}", f"t{i}") for i in range(1000)] + [Pair("e\u0301", "x"), Pair("é", "y")]
    split = split_of([pair.source for pair in pairs])
    train, held = list(split.train(pairs)), list(split.held_out(pairs))
    assert len(train) + len(held) == len(pairs)
    assert held
    assert not {pair.source for pair in train} & {pair.source for pair in held}
    assert split.held("é") == split.held("e\u0301")


def test_nothing_to_split():
    with pytest.raises(
        CorpusError, match=r"^nothing can be held out of one source; give a held-out file, or more pairs$"
    ):
        split_of(["a", "a"])
    with pytest.raises(CorpusError, match=r"^nothing can be held out of no pairs at all; "):
        split_of([])


def test_variants_by_hand():
    pairs = [Pair("tomato", "A"), Pair("potato", "C"), Pair("tomato", "B"), Pair("tomato", "A"), Pair("é", "x")]
    pairs.append(Pair("e\u0301", "y"))
    assert variants(pairs) == {"tomato": ["A", "B"], "potato": ["C"], "é": ["x", "y"]}


def test_a_survey_counts_splits_and_samples_what_may_be_learned():
    pairs = [Pair(f"source {i}", f"target {i}") for i in range(1000)]
    seen = survey(iter(pairs), seed=3)
    assert seen.pairs == 1000
    assert seen.split == split_of([pair.source for pair in pairs], 3)
    train = list(seen.split.train(pairs))
    assert seen.sources == [pair.source for pair in train]
    assert seen.targets == [pair.target for pair in train]
    whole = survey(pairs, seed=3, hold_out=False)
    assert whole.split is None
    assert len(whole.sources) == 1000
