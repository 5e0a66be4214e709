"""Inconsistent targets: the share of sources that have several, and the accuracy that remains."""

import random

import pytest

from regard.text import group_references
from regard.text.data_checks import PairChecks
from regard.text.reading import Pair
from regard.text.target_consistency import consistency_warnings
from tests.commands.small import arguments, regard, written


def checked(pairs) -> PairChecks:
    checks = PairChecks()
    for pair in pairs:
        checks.add(Pair(*pair))
    return checks


def test_the_ceiling_by_hand():
    # a: x x y → 2/3; b: x y z → 1/3; c: x x → 1; d: x → 1
    pairs = [("a", "x"), ("b", "x"), ("a", "y"), ("c", "x"), ("a", "x"), ("b", "y"), ("b", "z")]
    found = checked([*pairs, ("c", "x"), ("d", "x")]).consistency()
    assert found == (pytest.approx(2 / 4), pytest.approx((2 / 3 + 1 / 3 + 1 + 1) / 4))
    assert checked([("a", "x"), ("b", "x")]).consistency() == (0, 1)
    assert checked([]).consistency() == (0, 1)


def test_the_ceiling_is_the_accuracy_of_the_best_model():
    """The model that knows all frequencies, on references drawn from them."""
    draw = random.Random(1)
    pairs = [(f"s{draw.randrange(800)}", draw.choice("xxxyyz")) for _ in range(4_000)]
    by_source: dict[str, list[str]] = {}
    for source, target in pairs:
        by_source.setdefault(source, []).append(target)
    right = total = 0
    for targets in by_source.values():
        best = max(set(targets), key=targets.count)
        for _ in range(300):
            right += draw.choice(targets) == best
            total += 1
    assert checked(pairs).consistency()[1] == pytest.approx(right / total, abs=0.005)


def test_the_warning_depends_on_the_held_out_targets():
    pairs = [(f"s{i}", "x") for i in range(88)] + [(f"t{i}", t) for i in range(12) for t in "xy"]
    single = {f"h{i}": ["x"] for i in range(40)}
    (line,) = consistency_warnings(checked(pairs), single)
    assert line.startswith(
        "warning: 12 % of the sources have more than one target, but 0 % of the held-out sources: "
        "at most 94 % of held-out outputs can be right"
    )
    variants = {**single, **{f"v{i}": ["x", "y"] for i in range(5)}}
    assert consistency_warnings(checked(pairs), variants) == []
    assert consistency_warnings(checked(pairs), None) == []
    assert consistency_warnings(checked(pairs[:88]), single) == []
    many = [(f"t{i}", target) for i in range(30) for target in "xy"]
    (line,) = consistency_warnings(checked(many), None)
    assert "each counts as right on the held-out set" in line


def test_training_warns_and_the_report_shows_it(tmp_path, capsys):
    words = ["".join(pair) for pair in zip("abcd" * 12, "bcda" * 6 + "dabc" * 6, strict=True)]
    pairs = [(f"{word}{i}", word[::-1]) for i, word in enumerate(words)]
    data = written(tmp_path / "pairs.tsv", [*pairs, *((source, "a") for source, _ in pairs[:24])])
    held_out = written(tmp_path / "held.tsv", [("abab", "baba"), ("cdc", "cdc")])
    assert len(group_references([Pair(*pair) for pair in pairs])) == 48
    one = ("--steps", "1", "--set", "train.evaluations=1", "--held-out", held_out)
    _, err = regard(capsys, *arguments(data, tmp_path / "run", *one))
    expected = "50 % of the sources have more than one target, but 0 % of the held-out sources: "
    expected += "at most 75 % of held-out outputs can be right"
    assert f"warning: {expected}" in err
    assert f"Careful: {expected}" in (tmp_path / "run/report.html").read_text()
