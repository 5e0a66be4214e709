"""The measured accuracies of lessons 7 and 8 are in the form that their benchmark writes."""

import json
import math
from typing import Any

from benchmarks.lesson_lengths import KEPT, LESSONS, SEEDS, TESTED, as_text, summary


def shape(value: Any) -> Any:
    """Keys, lengths and kinds of a JSON value, without its numbers."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [len(value), shape(value[0])]
    return "number" if isinstance(value, int | float) else type(value).__name__


def test_the_kept_file_has_the_form_of_the_benchmark():
    table = [[0.5] * max(TESTED)] * max(TESTED)
    with_scores = ("learned", "distance")
    runs = {
        (name, kind, seed): ([1.0] * len(TESTED), table if kind in with_scores else None)
        for name, lesson in LESSONS.items()
        for kind in lesson["models"]
        for seed in SEEDS
    }
    expected = json.loads(as_text(summary(runs, SEEDS)))
    kept = json.loads(KEPT.read_text())
    assert shape(kept) == shape(expected)
    for name in ("lengths", "per_length", "seeds"):
        assert kept[name] == expected[name]
    for name in LESSONS:
        assert kept[name]["trained"] == expected[name]["trained"]
        rows = kept[name]["accuracy"].values()
        assert all(0 <= value <= 1 for row in rows for value in row)
        # a mean over seeds of a share of 100 strings
        parts = len(SEEDS) * kept["per_length"]
        assert all(
            math.isclose(value, round(value * parts) / parts, abs_tol=5.1e-5)
            for row in rows
            for value in row
        )


def test_means_are_over_seeds_by_length():
    lengths = len(TESTED)
    runs = {
        (name, kind, seed): ([seed / 10] * lengths, None)
        for name, lesson in LESSONS.items()
        for kind in lesson["models"]
        for seed in SEEDS
    }
    found = summary(runs, SEEDS)
    assert found["positions"]["accuracy"]["alibi"] == [0.2] * lengths
    assert found["position_scores"] == {}
