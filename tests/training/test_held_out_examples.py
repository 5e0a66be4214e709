"""The examples on a model's card: held-out sources of moderate length."""

from regard.text import train_tokenizer
from regard.training.held_out_examples import choose_examples

TOKENIZER = train_tokenizer("characters", ["abcdefghijklmnopqrstuvwxyz"])


def test_examples_are_spread_over_suitable_sources():
    suitable = [letter * 5 for letter in "abcdefghijkl"]
    sources = ["z", *suitable, "y" * 40, "é" * 5]
    assert choose_examples(sources, TOKENIZER, 3) == ["aaaaa", "eeeee", "iiiii"]


def test_other_lengths_are_used_if_there_is_nothing_else():
    assert choose_examples(["a", "b" * 30, "c" * 20], TOKENIZER, 2) == ["a", "c" * 20]
    assert choose_examples(["é", ""], TOKENIZER) == []
    assert choose_examples(["aaaa", " aaaa "], TOKENIZER) == ["aaaa"]
