"""White space, direction marks, emoji, case and scripts, in every kind of tokenizer."""

import unicodedata

import pytest

from regard.text import TOKENIZERS, UNKNOWN, train_tokenizer
from regard.text.regard_vocabulary import INVISIBLE, SPACES
from regard.text.tokenizer_training import TextForm

NBSP, NARROW, IDEOGRAPHIC = "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}", "\u3000"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"  # one picture of four characters and joiners
FLAG = "\U0001f1eb\U0001f1ee"  # two regional indicators
THUMB = "\U0001f44d\U0001f3fd"  # with a skin tone
KEYCAP = "1\ufe0f\u20e3"
TEXTS = [
    f"10{NBSP}000{NARROW}€ 東京{IDEOGRAPHIC}都",
    f"{FAMILY} {FLAG}{FLAG} {THUMB} {KEYCAP} ❤\ufe0f",
    "שָׁלוֹם \u200fabc\u200e \u2067מחרוזת\u2069 سلام می\u200cخواهم",
    "İstanbul ıI iİ ẞß ǆ ﬁ Ⅷ ΣΑΣ ς",
    "क्\u200dष का़ কো ണ്\u200d தொ",
    "x\u0323\u0307 o\u0308\u0304 \u0301x",
]


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_special_characters_survive(kind: str, decompose: bool):
    size = 700 if kind in ("bpe", "unigram") else None
    tokenizer = train_tokenizer(kind, TEXTS * 3, size=size, form=TextForm(decompose))
    for text in TEXTS:
        ids = tokenizer.encode(text)
        expected = unicodedata.normalize("NFC", text)
        if kind == "words":  # every white space separates symbols, and is written as a space
            expected = " ".join(expected.split())
        assert UNKNOWN not in ids
        assert tokenizer.decode(ids) == expected
        assert tokenizer.encode(unicodedata.normalize("NFD", text)) == ids


def test_case_is_kept():
    tokenizer = train_tokenizer("characters", ["Iı iİ"])
    assert len({*tokenizer.encode("IıiİI")}) == 4


def test_emoji_are_spelled_in_their_order():
    tokenizer = train_tokenizer("characters", [FAMILY, FLAG])
    assert [piece.text for piece in tokenizer.pieces(FAMILY)] == list(FAMILY)
    assert [piece.text for piece in tokenizer.pieces(FLAG)] == list(FLAG)


@pytest.mark.parametrize("space", SPACES)
def test_unseen_spaces_are_read_as_a_plain_one(space: str):
    tokenizer = train_tokenizer("characters", ["a b"])
    assert tokenizer.encode(f"a{space}b") == tokenizer.encode("a b")
    assert tokenizer.unknown_symbols(f"a{space}b") == []
    assert [(p.start, p.end) for p in tokenizer.pieces(f"a{space}b")] == [(0, 1), (1, 2), (2, 3)]
    seen = train_tokenizer("characters", [f"a b{space}c"])
    assert seen.encode(f"a{space}b") != seen.encode("a b")
    none = train_tokenizer("characters", ["ab"])
    assert none.unknown_symbols(f"a{space}b") == [unicodedata.normalize("NFC", space)]


@pytest.mark.parametrize("mark", ["\u200f", "\u200e", "\ufeff", "\u00ad", "\ufe0f", "\u200b"])
def test_unseen_invisible_characters_are_left_out(mark: str):
    assert mark in INVISIBLE
    tokenizer = train_tokenizer("characters", ["ab"])
    assert tokenizer.encode(f"{mark}a{mark}b") == tokenizer.encode("ab")
    assert [(p.text, p.start, p.end) for p in tokenizer.pieces(f"a{mark}b")] == [
        ("a", 0, 1),
        ("b", 2, 3),
    ]
    seen = train_tokenizer("characters", [f"a{mark}b"])
    assert seen.decode(seen.encode(f"a{mark}b")) == f"a{mark}b"


def test_listed_characters_are_spaces_and_format_characters():
    spaces = {chr(c) for c in range(0x10000) if unicodedata.category(chr(c)) == "Zs"} - {" "}
    assert set(SPACES) == spaces
    assert {unicodedata.category(one) for one in INVISIBLE} == {"Cf", "Mn"}
