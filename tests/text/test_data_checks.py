"""Checks of a corpus: each finding is counted by hand on a few pairs."""

import pytest

from regard.text import Pair, PairChecks
from regard.text.data_checks import TypicalPair, unusual_text

WORDS = [Pair("ab" * n, "ba" * n) for n in range(1, 31)]


def checked(*more: tuple[str, str], held_out: list[Pair] | None = None) -> PairChecks:
    checks = PairChecks(held_out or ())
    for pair in [*WORDS, *(Pair(*one) for one in more)]:
        checks.add(pair)
    return checks


def test_findings_are_counted_with_examples():
    found = checked(
        ("ab", "ba"),
        ("ab", "ba"),
        ("ab", "xy"),
        ("same", "same"),
        ("fÃ¶r", "for"),
        ("see https://x.y", "yes ok really"),
        ("short", "long " * 20),
        ("дом", "dom"),
    ).report()
    assert found.pairs == 38
    assert found.counts == {
        "duplicate": 2,
        "conflict": 1,
        "identical": 1,
        "broken characters": 1,
        "markup": 1,
        "length": 1,
        "script": 1,
    }
    assert found.examples["conflict"] == [("ab", "xy")]
    assert found.examples["script"] == [("дом", "dom")]
    assert found.examples["duplicate"] == [("ab", "ba"), ("ab", "ba")]


def test_sides_are_described():
    side = checked().report().sides["source"]
    assert (side.shortest, side.median, side.longest) == (2, 31, 60)
    assert (side.words, side.characters, side.scripts) == (1, 2, {"Latin": 1.0})


def test_overlap_and_coverage():
    held_out = [Pair("ab", "zz"), Pair("new abab", "zz")]
    found = checked(("ab", "q"), held_out=held_out).report()
    assert found.counts["overlap"] == 1
    assert found.coverage == {"source": 2 / 3, "target": 0.0}


def test_clean_data_give_no_warning():
    assert checked().warnings() == []


def test_serious_findings_are_warnings():
    warnings = checked(*[("ab", "ba")] * 5, ("fÃ¶r", "for")).warnings()
    assert warnings == [
        "data: 1 pairs with broken characters (a wrong encoding?) (2.8 %), for example 'fÃ¶r' → "
        "'for'; name the --encoding, or drop them with regard clean",
        "data: 5 exact duplicates of an earlier pair (13.9 %), for example 'ab' → 'ba'; regard "
        "clean drops them",
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("für", ""),
        ("fÃ¼r", "broken characters"),
        ("donâ€™t", "broken characters"),
        ("a\ufffdb", "broken characters"),
        ("a\x07b", "broken characters"),
        ("AT&amp;T", "markup"),
        ("AT&T", ""),
        ("SÃO PAULO", ""),
        ("<2mod> a", ""),
        ("<br/>", "markup"),
    ],
)
def test_unusual_text(text: str, kind: str):
    assert unusual_text(Pair(text, "x")) == kind


def test_typical_pair_tells_unusual_lengths():
    typical = TypicalPair(WORDS)
    assert typical.differs(Pair("a" * 20, "b" * 30)) == ""
    assert typical.differs(Pair("a" * 20, "b" * 200)) == "length"
    assert typical.differs(Pair("a" * 20, "b" * 30), max_ratio=1.2) == "length"
    assert typical.differs(Pair("a", "bbbbbbb")) == ""  # too short to judge
