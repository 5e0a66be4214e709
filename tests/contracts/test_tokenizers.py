"""Contract of tokenizers: lossless round trips, spans, files and errors, for every kind, composed
and decomposed."""

import random
import unicodedata
from pathlib import Path

import pytest
import tokenizers

from regard.text import BEGIN, END, TOKENIZERS, UNKNOWN, Tokenizer, train_tokenizer
from regard.text.tokenizer_training import TextForm
from regard.text.tokenizers import SPECIAL_TOKENS, TokenizerError, nfc

LINES = [
    "the cat sat on the mat, the cat did",
    " a leading and  a double and a trailing space ",
    "Wörter mit Umlauten: älter, größer, schöner (1984)",
    "我们今天去公园散步。天气很好，我们很高兴。",
    "今日は天気がいいから、散歩しましょう。",
    "วันนี้อากาศดีมาก เราไปเดินเล่นกัน",
    "tab\tand\nline feed, \u2028 and \N{NO-BREAK SPACE} too",
    "<0x0A> <s> </s> < unknown > ▁ Ġ",
    "한국어 각각, Tiếng Việt Ệ, ἄνθρωπος ΐ, হো ক़, בְּרֵאשִׁית",
    "👩🏽‍🚀 🇫🇮 👍🏽 ❤️ ‎(‏)   　 ﻿ x",
]
# Parts of random texts: all are in LINES, in other orders and decompositions.
FRAGMENTS = [
    "e\u0308",
    "o\u0308",
    "が",
    "か\u3099",
    "ü",
    "  ",
    " ",
    "\n",
    "\t",
    "<0x0A>",
    "< begin >",
    "<",
    "1984",
    "公园",
    "นี้",
    "Wört",
    "▁",
    "한",
    "\u1112\u1161\u11ab",
    "ệ",
    "e\u0302\u0323",
    "👩🏽\u200d🚀",
    "🇫🇮",
    "\N{NO-BREAK SPACE}",
]
EXACT = [kind for kind in TOKENIZERS if kind != "words"]  # words lose repeated spaces


FORMS = [(kind, decompose) for kind in TOKENIZERS for decompose in (False, True)]
NAMES = [f"{kind}-{'NFD' if decompose else 'NFC'}" for kind, decompose in FORMS]


def train_on_lines(kind: str, decompose: bool = False) -> Tokenizer:
    lines = [*LINES * 3, "".join(sorted(set("".join(nfc(fragment) for fragment in FRAGMENTS))))]
    size = 600 if kind in ("bpe", "unigram") else None
    return train_tokenizer(kind, lines, size=size, form=TextForm(decompose))


@pytest.fixture(scope="module", params=FORMS, ids=NAMES)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_on_lines(*request.param)


@pytest.fixture(
    scope="module", params=[form for form in FORMS if form[0] in EXACT], ids=lambda form: str(form)
)
def exact(request: pytest.FixtureRequest) -> Tokenizer:
    return train_on_lines(*request.param)


def spelled(tokenizer: Tokenizer, text: str) -> str:
    """The text in the tokenizer's Unicode form."""
    return unicodedata.normalize("NFD" if tokenizer.is_decomposed else "NFC", text)


def random_texts(seed: int, count: int = 300) -> list[str]:
    """Random texts from FRAGMENTS and single characters of LINES."""
    draw = random.Random(seed)
    parts = [*FRAGMENTS * 3, *"".join(LINES)]
    return ["".join(draw.choices(parts, k=draw.randrange(12))) for _ in range(count)]


def test_special_tokens_have_fixed_ids(tokenizer: Tokenizer):
    assert (UNKNOWN, BEGIN, END) == (0, 1, 2)
    assert [tokenizer.label(id) for id in range(3)] == list(SPECIAL_TOKENS)


def test_kind_is_inferred_from_the_file(tokenizer: Tokenizer, tmp_path: Path):
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.kind == tokenizer.kind
    assert again.is_decomposed == tokenizer.is_decomposed
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode(LINES[2]) == tokenizer.encode(LINES[2])
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("seed", range(3))
def test_decode_inverts_encode(exact: Tokenizer, seed: int):
    for text in [*LINES, *random_texts(seed)]:
        ids = exact.encode(text)
        assert exact.decode(ids) == unicodedata.normalize("NFC", text)
        assert exact.decode([BEGIN, *ids, END]) == unicodedata.normalize("NFC", text)
        assert not {UNKNOWN, BEGIN, END} & set(ids)


def test_library_reads_the_file_alone(tokenizer: Tokenizer, tmp_path: Path):
    path = str(tmp_path / "tokenizer.json")
    tokenizer.save(path)
    alone = tokenizers.Tokenizer.from_file(path)
    assert type(alone.normalizer).__name__ == ("NFD" if tokenizer.is_decomposed else "NFC")
    for text in [*LINES, *random_texts(7, 50)]:
        ids = alone.encode(text).ids
        assert ids == tokenizer.encode(text)
        if UNKNOWN not in ids:
            assert nfc(alone.decode(ids)) == tokenizer.decode(ids)


def test_text_never_encodes_to_special_tokens(tokenizer: Tokenizer):
    for symbol in SPECIAL_TOKENS:
        ids = tokenizer.encode(f"{symbol} x{symbol}")
        assert not {BEGIN, END} & set(ids)
        assert tokenizer.kind not in EXACT or tokenizer.decode(ids) == f"{symbol} x{symbol}"


def test_pieces_cover_the_text(exact: Tokenizer):
    for text in [*LINES, *random_texts(11)]:
        pieces = exact.pieces(text)
        assert [piece.id for piece in pieces] == exact.encode(text)
        covered = {place for piece in pieces for place in range(piece.start, piece.end)}
        assert covered == set(range(len(text)))
        for piece in pieces:
            if not piece.text.startswith("<0x") and piece.id > 2:
                assert piece.text in spelled(exact, text[piece.start : piece.end])


def test_decoded_pieces_have_spans_in_the_text(tokenizer: Tokenizer):
    for text in LINES:
        ids = [BEGIN, *tokenizer.encode(text), END]
        written = tokenizer.decode(ids)
        pieces = tokenizer.decode_pieces(ids)
        assert (pieces[0].start, pieces[0].end) == (0, 0)
        assert (pieces[-1].start, pieces[-1].end) == (len(written), len(written))
        for piece in pieces[1:-1]:
            if tokenizer.is_decomposed and not piece.text.startswith("<0x"):
                assert piece.text in spelled(tokenizer, written[piece.start : piece.end])
            elif tokenizer.kind != "bytes" and not piece.text.startswith("<0x"):
                assert written[piece.start : piece.end] == piece.text


def test_ids_out_of_range(tokenizer: Tokenizer):
    size = len(tokenizer)
    with pytest.raises(
        TokenizerError,
        match=rf"^id {size} is not in this vocabulary of {size} \(0 to {size - 1}\)$",
    ):
        tokenizer.decode([3, size])
    with pytest.raises(TokenizerError, match=r"^id -1 is not in this vocabulary"):
        tokenizer.label(-1)
    with pytest.raises(TokenizerError, match=r"^id -2 is not in this vocabulary"):
        tokenizer.decode([3, -2])


def test_half_a_surrogate_pair(tokenizer: Tokenizer):
    with pytest.raises(
        TokenizerError,
        match=r"is not valid Unicode: it has half a surrogate pair; decode it as UTF-8$",
    ):
        tokenizer.encode("a\ud800")
