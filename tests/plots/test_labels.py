"""Labels by hand."""

import pytest

from regard.errors import ShapeError
from regard.plots.heat_map import step_labels, token_labels


def test_repeated_tokens_show_their_position():
    assert token_labels(["the", "man", "hit", "the", "car"]) == [
        "the₀",
        "man",
        "hit",
        "the₃",
        "car",
    ]


def test_positions_of_several_digits():
    assert token_labels(["a"] * 11)[10] == "a₁₀"


def test_decoder_rows_show_input_and_output():
    assert step_labels(["<s>", "the"], ["the", "Hund"]) == ["after <s> → the", "after the → Hund"]


def test_a_repeated_prefix_token_is_distinguished():
    assert step_labels(["a", "a"], ["a", "b"]) == ["after a₀ → a", "after a₁ → b"]


def test_blanks_are_shown():
    assert token_labels([" a", "\n", "\t", ""]) == ["␣a", "↵", "⇥", "∅"]


def test_a_combining_mark_stands_on_a_circle():
    assert token_labels(["e", "\u0301", "\u1161"]) == ["e", "◌\u0301", "\u1161"]


def test_a_very_long_token_is_shortened_and_unique():
    first, second = token_labels(["x" * 30 + "1", "x" * 30 + "1"])
    assert first == "x" * 9 + "…" + "x" * 8 + "1₀"
    assert second.endswith("₁")


def test_too_few_predicted():
    with pytest.raises(ShapeError, match="got 2 fed in and 1 predicted"):
        step_labels(["a", "b"], ["c"])
