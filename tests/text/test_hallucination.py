"""Hallucination: the same random stem on both sides, and nothing else changed."""

import pytest

from regard.text.hallucination import MAX_CHANGE, Hallucinator, shared_stretches


def test_shared_stretches_by_hand():
    assert shared_stretches("walken", "gewalkt") == [(0, 2, 4)]
    assert shared_stretches(["<PL>", *"haus"], list("häuser")) == []  # only "us" is shared
    assert shared_stretches("abcxdef", "abcdef") == [(0, 0, 3), (4, 3, 3)]


def plural(stem: str) -> tuple[list[str], list[str]]:
    return ["<PL>", *stem], [*stem, "e", "n"]


def test_affixes_and_tags_stay_and_stems_agree():
    stems = ["lampa", "tulpa", "blumak", "katzo"]
    drawn = list(Hallucinator(map(plural, stems), seed=1).draw(500))
    assert len(drawn) == 500
    for source, target in drawn:
        assert source[0] == "<PL>"
        assert (source[1:], ["e", "n"]) == (target[:-2], target[-2:])
    new = {"".join(source[1:]) for source, _ in drawn}
    assert len(new) > 300
    assert set("".join(new)) == set("".join(stems))  # every letter, and no other
    lengths = {len(stem) for stem in new}
    assert min(lengths) < 5 < max(lengths) <= 6 + MAX_CHANGE


def test_the_same_seed_draws_the_same_pairs():
    pairs = [plural("lampa"), plural("tulpa")]
    first, again, other = (list(Hallucinator(pairs, seed).draw(20)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("pairs", [[], [("abc", "xyz")], [("ab", "ab")]])
def test_nothing_is_drawn_without_a_shared_stem(pairs):
    hallucinator = Hallucinator(pairs, seed=1)
    assert hallucinator.share == 0
    assert list(hallucinator.draw(5)) == []
