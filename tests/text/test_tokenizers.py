"""Tokenizers by hand: segmentation, unknown symbols, spans and files.

The contract of every kind is in contracts/test_tokenizers.py.
"""

import json
import random
import unicodedata
from pathlib import Path

import pytest

from regard.errors import UnknownName
from regard.text import (
    BEGIN,
    END,
    TOKENIZERS,
    UNKNOWN,
    Tokenizer,
    choose_tokenizer,
    train_tokenizer,
)
from regard.text.tokenizers import BYTE_TOKENS, TokenizerError, source_spans
from tests.contracts.test_tokenizers import LINES, random_texts, train_on_lines


def test_characters_by_hand():
    tokenizer = train_tokenizer("characters", ["banana"])
    assert tokenizer.encode("nab") == [4, 3, 5]  # after the special tokens, by frequency: a n b
    assert tokenizer.decode([5, 3, 4, 3]) == "bana"
    assert len(tokenizer) == 6


def test_words_by_hand():
    tokenizer = train_tokenizer("words", ["HH AH0 L OW1", "AH0  L"])
    assert tokenizer.encode("L AH0  HH ") == [4, 3, 5]  # AH0 and L (twice), then HH and OW1
    assert tokenizer.decode([BEGIN, 6, 3, END]) == "OW1 AH0"


def test_bytes_by_hand():
    tokenizer = train_tokenizer("bytes", [])
    assert tokenizer.encode("aé") == [3 + 0x61, 3 + 0xC3, 3 + 0xA9]
    assert len(tokenizer) == 259


def test_bpe_by_hand():
    tokenizer = train_tokenizer("bpe", ["aaab aab aab"], size=3 + 256 + 6)
    labels = [tokenizer.label(id) for id in range(259, len(tokenizer))]
    # a+a occurs 4 times; then " "+aa twice (as aa+b, but the lower ids come first); then " aa"+b
    # twice
    assert labels == [" ", "a", "b", "aa", " aa", " aab"]
    assert [tokenizer.label(id) for id in tokenizer.encode("aabaaa b aab")] == [
        "aa",
        "b",
        "aa",
        "a",
        " ",
        "b",
        " aab",
    ]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_digits_and_punctuation_are_separate_tokens(kind: str):
    tokenizer = train_tokenizer(kind, ["in 1984, (so) he said"] * 30, size=400)
    assert [piece.text.strip() for piece in tokenizer.pieces("1984")] == ["1", "9", "8", "4"]
    letters = {
        character.isalpha()
        for id in range(259, len(tokenizer))
        for character in tokenizer.label(id).strip()
    }
    assert letters == {True, False}
    for id in range(259, len(tokenizer)):
        assert len({character.isalpha() for character in tokenizer.label(id).strip()}) <= 1


def test_words_are_decoded_with_single_spaces():
    tokenizer = train_on_lines("words")
    for line in LINES:
        assert tokenizer.decode(tokenizer.encode(line)) == " ".join(
            unicodedata.normalize("NFC", line).split()
        )


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram"])
def test_byte_fallback_preserves_any_character(kind: str):
    tokenizer = train_tokenizer(kind, ["only latin letters here"] * 5, size=300)
    draw = random.Random(5)
    known = [chr(c) for c in range(0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    for _ in range(200):
        text = "".join(draw.choices(known, k=8)) + " letters"
        assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)
        assert tokenizer.unknown_symbols(text) == []


def test_unknown_symbols_are_reported():
    characters = train_tokenizer("characters", ["abc"])
    assert characters.unknown_symbols("a€bcx€") == ["€", "x", "€"]
    assert characters.decode(characters.encode("a€b")) == "a\N{REPLACEMENT CHARACTER}b"
    words = train_tokenizer("words", ["HH AH0"])
    assert words.unknown_symbols("HH  ZH AH0 OY") == ["ZH", "OY"]
    assert words.unknown_symbols("HH AH0") == []


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram"])
def test_text_never_encodes_to_named_byte_tokens(kind: str):
    tokenizer = train_tokenizer(kind, ["<0x0A> <0x0A>x <0x0A>"] * 50, size=400)
    for text in (*BYTE_TOKENS, "<0x0A><0x0A> <0x0A>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert 3 + 0x0A not in tokenizer.encode("<0x0A>")


def test_pieces_have_spans_in_the_original_text():
    text = "ne\u0301 \u1112\u1161\u11abx"  # né, 한 from three jamo, x
    characters = train_tokenizer("characters", ["né x"])
    assert characters.pieces(text) == [
        ("n", characters.encode("n")[0], 0, 1),
        ("é", characters.encode("é")[0], 1, 3),
        (" ", characters.encode(" ")[0], 3, 4),
        ("한", UNKNOWN, 4, 7),
        ("x", characters.encode("x")[0], 7, 8),
    ]
    words = train_tokenizer("words", ["né"])
    assert words.pieces(f" {text}") == [("né", 3, 1, 4), ("한x", UNKNOWN, 5, 9)]
    bytes_ = train_tokenizer("bytes", [])
    assert [tuple(piece) for piece in bytes_.pieces("e\u0301x")] == [
        ("<0xC3>", 3 + 0xC3, 0, 2),
        ("<0xA9>", 3 + 0xA9, 0, 2),
        ("x", 3 + 0x78, 2, 3),
    ]


def test_decoded_pieces_of_partial_characters():
    bytes_ = train_tokenizer("bytes", [])
    euro = bytes_.encode("€")
    assert [(p.start, p.end) for p in bytes_.decode_pieces([*euro, *bytes_.encode("x")])] == [
        (0, 1)
    ] * 3 + [(1, 2)]
    assert bytes_.decode(euro[:2]) == "\N{REPLACEMENT CHARACTER}"


def test_source_spans_by_hand():
    assert source_spans("abc") == [(0, 1), (1, 2), (2, 3)]
    assert source_spans("ae\u0301\u0302b") == [
        (0, 1),
        (1, 4),
        (1, 4),
        (4, 5),
    ]  # é and a second mark
    assert source_spans("q\u0307\u0323") == [(0, 3)] * 3  # marks are reordered
    assert source_spans("\u1112\u1161\u11ab\u1112") == [(0, 3), (3, 4)]
    assert source_spans("") == []


def test_source_spans_cover_the_text():
    for text in random_texts(13):
        spans = source_spans(text)
        assert len(spans) == len(unicodedata.normalize("NFC", text))
        assert "".join(text[a:b] for a, b in sorted(set(spans))) == text


@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
def test_training_is_independent_of_line_order(kind: str):
    first, again = (train_tokenizer(kind, lines) for lines in (LINES * 3, iter(LINES[::-1] * 3)))
    assert first.fingerprint == again.fingerprint


@pytest.mark.parametrize("kind", ["characters", "words", "bpe", "unigram"])
def test_size_limit_keeps_frequent_tokens(kind: str):
    size = 290 if kind in ("bpe", "unigram") else 8
    tokenizer = train_tokenizer(kind, ["e e e e t t t a a a o o i i n n rare"] * 3, size=size)
    assert len(tokenizer) <= size
    assert UNKNOWN not in tokenizer.encode("e t a")


def test_large_alphabets_leave_room_for_subwords():
    draw = random.Random(0)
    han = [chr(0x4E00 + i) for i in range(3000)]
    lines = [
        "".join(draw.choices(han, [1 / (i + 1) for i in range(3000)], k=20)) for _ in range(400)
    ]
    for kind in ("bpe", "unigram"):
        tokenizer = train_tokenizer(kind, lines, size=1000)
        assert len(tokenizer) <= 1000
        assert all(tokenizer.decode(tokenizer.encode(line)) == line for line in lines)
        assert len(tokenizer.label(len(tokenizer) - 1)) >= 1


@pytest.mark.parametrize(
    ("kind", "lines", "size", "message"),
    [
        ("bpe", ["a"], 259, "a bpe tokenizer needs a size of at least 260; got 259"),
        ("words", ["a"], 3, "a words tokenizer needs a size of at least 4; got 3"),
        ("characters", [], None, "no text to train characters on; give lines that are not empty"),
        ("unigram", ["", ""], None, "no text to train unigram on; give lines that are not empty"),
        ("words", [" "], None, "no text to train words on; give lines that are not empty"),
    ],
)
def test_invalid_training(kind: str, lines: list[str], size: int | None, message: str):
    with pytest.raises(TokenizerError, match=f"^{message}$"):
        train_tokenizer(kind, lines, size=size)


def test_unknown_kind():
    with pytest.raises(
        UnknownName, match=r"^unknown tokenizer 'character'; did you mean 'characters'\?$"
    ):
        train_tokenizer("character", ["a"])


def test_invalid_tokenizer_files(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(
        TokenizerError,
        match=r"^cannot read tokenizer '.*tokenizer.json': No such file or directory$",
    ):
        Tokenizer.load(path)
    train_on_lines("bpe").save(path)
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(
        TokenizerError,
        match=r"^'.*tokenizer.json' is not a valid tokenizer.json \(.*\); copy it again$",
    ):
        Tokenizer.load(path)
    path.write_bytes(b"\xff\x00")
    with pytest.raises(TokenizerError, match=r"is not a valid tokenizer.json"):
        Tokenizer.load(path)
    altered = json.loads(whole)
    altered["normalizer"] = None
    path.write_text(json.dumps(altered))
    with pytest.raises(
        TokenizerError, match=r"parts of it are missing or altered: .* NFC\); copy it again$"
    ):
        Tokenizer.load(path)


def test_training_on_a_single_string_is_an_error():
    with pytest.raises(
        TokenizerError,
        match=r"^lines must be an iterable of lines, such as a list or an open file; got",
    ):
        train_tokenizer("words", "corpus.txt")


# ---- tags

TAGGED = ["<2mod> hafva äfven", "<2old>även <b>över</b>", "<2mod> öfver 1 < 2"] * 20


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tags_are_single_tokens(kind: str, tmp_path: Path):
    size = 300 if kind in ("bpe", "unigram") else None
    tokenizer = train_tokenizer(kind, TAGGED, size=size)
    tokenizer.save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.kind == kind
    assert size is None or len(tokenizer) <= size
    text = "<2mod> äfven"
    pieces = tokenizer.pieces(text)
    assert (pieces[0].text, pieces[0].start, pieces[0].end) == ("<2mod>", 0, 6)
    assert pieces[-1].end == len(text)
    for line in TAGGED[:3]:
        assert tokenizer.decode(tokenizer.encode(line)) == line
    if kind != "words":  # whose tokens are separated by spaces
        labels = [piece.text for piece in tokenizer.pieces("<b>över</b>")]
        assert labels[0] == "<b>"
        assert labels[-1] == "</b>"


def test_text_that_only_looks_like_a_tag():
    tokenizer = train_tokenizer("bpe", ["a<b and c>d, <0x0A>, < x >, <>, <a@b.de>"] * 5, size=300)
    assert not tokenizer.library.get_added_tokens_decoder()
    text = "<0x0A> a<b"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tags_do_not_change_the_choice_of_tokenizer():
    words = ["hafva", "äfven", "blifva", "skrifva"] * 30
    plain = choose_tokenizer(words)
    assert choose_tokenizer([f"<2mod> {word}" for word in words]) == plain
