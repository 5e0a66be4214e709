"""The alphabet and the case of the texts that a tokenizer was made for."""

import pytest

from regard.text import train_tokenizer
from regard.text.input_alphabet import case_of, describe_input, vocabulary_text
from regard.text.tags import TagSet
from regard.text.tokenizer_training import TextForm


@pytest.mark.parametrize(
    ("characters", "case"),
    [
        ("abc'", "lower"),
        ("AB 1", "upper"),
        ("aB", "any"),
        ("123", "any"),
        ("", "any"),
        ("ßa", "lower"),
    ],
)
def test_case_is_that_of_all_letters(characters, case):
    assert case_of(characters) == case


def test_alphabet_of_characters_and_words():
    assert describe_input(train_tokenizer("characters", ["bad", "cab's"])) == {
        "alphabet": "'abcds",
        "case": "lower",
    }
    assert describe_input(train_tokenizer("words", ["AH B", "B Z"])) == {
        "alphabet": " ABHZ",
        "case": "upper",
    }


def test_alphabet_of_bytes_is_that_of_the_texts():
    tokenizer = train_tokenizer("bytes", ["abc"])
    assert describe_input(tokenizer) == {"alphabet": None, "case": "any"}
    assert describe_input(tokenizer, ["ab c", "cd"]) == {"alphabet": " abcd", "case": "lower"}
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    assert describe_input(tokenizer, [many + "Q"]) == {"alphabet": None, "case": "upper"}


def test_vocabulary_has_a_readable_text():
    assert vocabulary_text(train_tokenizer("words", ["a house is", "a"])) == "house"
    text = vocabulary_text(train_tokenizer("characters", ["abandon"]))
    assert sorted(text) == sorted(set("abandon"))
    assert vocabulary_text(train_tokenizer("characters", ["12"])) in ("1", "2")


def test_a_tag_is_no_readable_text():
    form = TextForm(tags=TagSet((), (" SG",)))
    assert "SG" not in vocabulary_text(train_tokenizer("characters", ["ab SG"], form=form))
