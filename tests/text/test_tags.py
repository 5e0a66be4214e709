"""Tags as single tokens: detection by frequency, tokenizers with tags, and data made by rule."""

import random
from pathlib import Path

import numpy as np
import pytest

from regard.errors import UnknownName
from regard.text import Tokenizer, choose_tokenizer, train_tokenizer
from regard.text.tag_detection import detect_tags
from regard.text.tags import TagSet
from regard.text.tokenizer_training import TextForm
from regard.text.tokenizer_workers import Encoder
from tests.text.rule_data import (
    code,
    dates,
    inflection,
    names,
    phones,
    regexes,
    smiles,
    sums,
    transliterated,
)

FEATURES = {"N", "V", "SG", "PL", "NOM", "GEN", "PST", "PRS", "1", "2", "3", "IN+ABL"}


def labels(tokenizer: Tokenizer, text: str) -> list[str]:
    return [piece.text for piece in tokenizer.pieces(text)]


def train(lines: list[str], **options) -> Tokenizer:
    tags = detect_tags(lines)
    kind = choose_tokenizer(lines, tags=tags).kind
    return train_tokenizer(kind, lines, form=TextForm(tags=tags), **options)


@pytest.mark.parametrize("order", ["last", "first"])
def test_features_of_a_bundle_are_tokens(order: str):
    lines = inflection(300, order)
    tags = detect_tags(lines)
    assert {tag.strip(" ;") for tag in tags.fields} == FEATURES
    assert choose_tokenizer(lines, tags=tags).kind == "characters"
    tokenizer = train(lines)
    text = "Viva zu V;PST;3" if order == "last" else "V;PST;3 Viva zu"
    tagged = [" V", ";PST", ";3"] if order == "last" else ["V", ";PST", ";3"]
    spelled = list("Viva zu") if order == "last" else list(" Viva zu")
    assert labels(tokenizer, text) == (spelled + tagged if order == "last" else tagged + spelled)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_unknown_features_are_spelled():
    tokenizer = train(inflection(300, "last"))
    assert labels(tokenizer, "na V;PLV") == ["n", "a", " V", ";", "P", "L", "V"]
    assert tokenizer.decode(tokenizer.encode("na V;PLV")) == "na V;PLV"


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        ([f"{tag} {w}" for w in names(200) for tag in ("fr", "de")], {"fr", "de"}),
        ([f"2{tag} {w}" for w in names(200) for tag in ("fr", "de")], {"2fr", "2de"}),
        ([f"{w} N {n}" for w in names(200) for n in ("SG", "PL")], {" N", " SG", " PL"}),
        ([f"{w} N+{n}" for w in names(200) for n in ("Sg", "Pl")], {" N", "+Sg", "+Pl"}),
        (
            [f"{w} Case={c}|Gender=Fem" for w in names(200) for c in ("Nom", "Acc")],
            {" Case=Nom", " Case=Acc", "|Gender=Fem"},
        ),
    ],
)
def test_recurring_codes_are_tags(lines: list[str], fields: set[str]):
    tags = detect_tags(lines)
    assert set(tags.fields) == fields
    assert f"{len(fields)} tags at the" in tags.reason
    tokenizer = train(lines)
    assert fields <= set(labels(tokenizer, lines[0])) | set(labels(tokenizer, lines[1]))
    assert tokenizer.decode(tokenizer.encode(lines[0])) == lines[0]


@pytest.mark.parametrize("mark", ["[{}]", "{{{}}}", ">>{}<<", "__{}__"])
@pytest.mark.parametrize("space", ["", " "])
def test_marks_in_brackets_are_tags(mark: str, space: str):
    codes = [mark.format(code) for code in ("PL", "SG")]
    lines = [f"{code}{space}{word}" for word in names(50) for code in codes]
    assert set(detect_tags(lines).marks) == set(codes)
    tokenizer = train(lines)
    assert labels(tokenizer, f"{codes[1]}{space}ana") == [codes[1], *space, *"ana"]


@pytest.mark.parametrize("kind", ["characters", "bytes", "words", "bpe", "unigram"])
@pytest.mark.parametrize("decompose", [False, True])
def test_every_kind_keeps_texts_with_tags(kind: str, decompose: bool, tmp_path: Path):
    lines = [
        f"{tag} sé [x] frage Xn <b>né</b> a;b" for tag in ("fr", "N;PL", "[x]") for _ in range(9)
    ]
    form = TextForm(decompose, TagSet(("[x]",), ("fr", "N", ";PL"), ""))
    size = 400 if kind in ("bpe", "unigram") else None
    train_tokenizer(kind, lines, size=size, form=form).save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.kind == kind
    for line in [*lines, "fr fragen N;PLX [x]N;PL"]:
        unknown = kind == "words" and line not in lines
        assert unknown or tokenizer.decode(tokenizer.encode(line)) == line
    texts = [*lines, "N;PL", "[x]"]
    ids, lengths = Encoder(tokenizer.library, "<i8")(texts)  # which encodes word by word
    whole = [tokenizer.encode(text) for text in texts]
    assert np.frombuffer(ids, "<i8").tolist() == [id for one in whole for id in one]
    assert np.frombuffer(lengths, np.int64).tolist() == list(map(len, whole))
    if kind != "words":
        assert {"fr", "N", ";PL", "[x]"} <= {
            *labels(tokenizer, "fr N;PL"),
            *labels(tokenizer, "N;PL [x]"),
        }


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (dates(2000), "characters"),
        (smiles(2000), "characters"),
        (regexes(2000), "characters"),
        (sums(2000), "characters"),
        (transliterated(2000), "characters"),
        (phones(2000), "words"),
        (code(4000), "bpe"),
    ],
)
def test_strings_that_are_not_words(lines: list[str], kind: str):
    tags = detect_tags(lines)
    assert not tags
    choice = choose_tokenizer(lines, tags=tags)
    assert choice.kind == kind
    tokenizer = train_tokenizer(choice.kind, lines, size=choice.size)
    draw = random.Random(3)
    for line in draw.sample(lines, 200):
        assert tokenizer.decode(tokenizer.encode(line)) == line


def test_requested_positions():
    lines = ["zu ana", "um bela"]
    assert detect_tags(lines) == TagSet()
    assert detect_tags(lines * 2, "first").fields == ("um", "zu")
    assert detect_tags(lines * 2, "last").fields == (" ana", " bela")
    assert detect_tags(inflection(300, "last"), "none") == TagSet()
    with pytest.raises(UnknownName, match=r"^unknown position of tags 'end'"):
        detect_tags(lines, "end")
