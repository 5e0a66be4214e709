"""Tokenizers of other projects: ids and texts as in transformers, spans, files and errors."""

import json
import random
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from regard.search.token_options import spellings
from regard.text import Tokenizer, tokenize_corpus
from regard.text.tokenizers import TokenizerError
from tests.text.foreign_tokenizers import LINES, STYLES, save_style

PARTS = [*" ".join(LINES).split(), "  ", "\t", "\n", "ﬁ", "e\u0308", "👍🏽", "ß", "<pad>", "</s>"]


def mixed_lines(count: int) -> list[str]:
    """Random lines of mixed scripts, with and without spaces."""
    chance = random.Random(5)
    return [
        chance.choice([" ", "", "  "]).join(chance.choices(PARTS, k=chance.randint(1, 12)))
        for _ in range(count)
    ]


@pytest.fixture(scope="module", params=STYLES)
def path(request, tmp_path_factory):
    return save_style(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def tokenizer(path):
    return Tokenizer.load(path)


def test_ids_and_texts_equal_those_of_transformers(path, tokenizer):
    expected = PreTrainedTokenizerFast(tokenizer_file=str(path))
    for line in [*LINES, "", *mixed_lines(1_000)]:
        ids = tokenizer.encode(line)
        assert ids == expected.encode(line, add_special_tokens=False)
        text = expected.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert tokenizer.decode(ids) == text


def test_vocabulary_is_that_of_the_file(path, tokenizer):
    expected = PreTrainedTokenizerFast(tokenizer_file=str(path))
    assert tokenizer.kind == "foreign"
    assert tokenizer.is_foreign
    assert len(tokenizer) == len(expected)
    names = [tokenizer.token(id) for id in range(len(tokenizer))]
    assert names == expected.convert_ids_to_tokens(list(range(len(expected))))
    unknown = "[UNK]" if "[UNK]" in names else "<unk>"
    assert tokenizer.unknown == names.index(unknown)


def test_spans_of_a_text_lie_in_it(tokenizer):
    for line in [*LINES, *mixed_lines(100)]:
        pieces = tokenizer.pieces(line)
        assert [piece.id for piece in pieces] == tokenizer.encode(line)
        starts = [piece.start for piece in pieces]
        assert starts == sorted(starts)
        assert all(0 <= piece.start <= piece.end <= len(line) for piece in pieces)
        covered = {i for piece in pieces for i in range(piece.start, piece.end)}
        left = {line[i] for i in range(len(line)) if i not in covered}
        # a normaliser may drop spaces, and join a mark with the character before it
        assert all(one.isspace() or unicodedata.category(one)[0] == "M" for one in left), left


def test_spans_of_ids_cover_the_decoded_text(tokenizer):
    for line in [*LINES, *mixed_lines(50)]:
        ids = tokenizer.encode(line)
        text, pieces = tokenizer.decode(ids), tokenizer.decode_pieces(ids)
        assert [piece.id for piece in pieces] == ids
        covered = {i for piece in pieces for i in range(piece.start, piece.end)}
        assert covered == set(range(len(text)))


def test_saved_file_and_corpus_give_the_same_ids(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "again.json")
    again = Tokenizer.load(tmp_path / "again.json")
    assert again.fingerprint == tokenizer.fingerprint
    lines = [line for line in [*LINES, *mixed_lines(200)] if line]
    stored = tokenize_corpus(
        [(line, line) for line in lines], tokenizer, again, tmp_path / "ids", workers=2
    )
    for ids, offsets in stored.gather(np.arange(len(lines))):
        found = [ids[a:b].tolist() for a, b in pairwise(offsets)]
        assert found == [tokenizer.encode(line) for line in lines]


LABELS = {
    "byte-level": ("on the ж", ["on", " the", " <0xD0>", "<0xB6>"]),
    "sentencepiece": ("on the", [" on"]),
    "byte-fallback": ("on the ж", [" the ", "<0xD0>", "<0xB6>"]),
    "wordpiece": ("the cat", ["the", "cat"]),
}


@pytest.mark.parametrize("style", STYLES)
def test_labels_are_readable(style, tmp_path):
    tokenizer = Tokenizer.load(save_style(style, tmp_path))
    text, expected = LABELS[style]
    labels = [tokenizer.label(id) for id in tokenizer.encode(text)]
    assert set(expected) <= set(labels), labels


def test_special_tokens_are_their_own_labels(tmp_path):
    tokenizer = Tokenizer.load(save_style("sentencepiece", tmp_path))
    last = len(tokenizer) - 1
    assert [tokenizer.label(id) for id in (0, 1, last)] == ["<pad>", "</s>", "deu_Latn"]
    assert tokenizer.decode([last, *tokenizer.encode("the cat"), 1]) == "the cat"
    pieces = tokenizer.decode_pieces([last, *tokenizer.encode("the cat"), 1])
    assert (pieces[0].start, pieces[0].end) == (0, 0)
    assert (pieces[-1].start, pieces[-1].end) == (7, 7)


def test_unknown_symbols_are_their_text(tmp_path):
    tokenizer = Tokenizer.load(save_style("sentencepiece", tmp_path))
    assert "".join(tokenizer.unknown_symbols("the ☃ cat")).strip() == "☃"
    assert tokenizer.unknown_symbols("the cat") == []
    assert Tokenizer.load(save_style("byte-level", tmp_path)).unknown_symbols("☃") == []


def test_words_have_a_form_inside_a_text(tmp_path):
    tokenizer = Tokenizer.load(save_style("byte-level", tmp_path))
    first, inside = spellings(tokenizer, "the")
    assert first == tokenizer.encode("the")
    assert tokenizer.encode("on the")[-len(inside) :] == inside
    with pytest.raises(Exception, match="contains symbols that the target vocabulary lacks"):
        spellings(Tokenizer.load(save_style("sentencepiece", tmp_path)), "☃")


def test_a_model_may_have_more_ids_than_the_file(tmp_path):
    small = Tokenizer.load(save_style("byte-level", tmp_path))
    tokenizer = small.with_size(len(small) + 3)
    unused = len(tokenizer) - 1
    assert tokenizer.encode("the cat") == small.encode("the cat")
    assert tokenizer.decode([*small.encode("the"), unused]) == "the"
    assert tokenizer.label(unused) == f"<unused {unused}>"
    with pytest.raises(TokenizerError, match="id 999999 is not in this vocabulary"):
        tokenizer.decode([999_999])


def test_tokens_that_a_model_lacks_are_unknown(tmp_path):
    whole = Tokenizer.load(save_style("sentencepiece", tmp_path))
    ids = whole.encode("the cat sat on the mat")
    size = max(ids)
    tokenizer = whole.with_size(size)
    assert len(tokenizer) == size
    assert tokenizer.encode("the cat sat on the mat") == [
        whole.unknown if id == size else id for id in ids
    ]
    pairs = [("the cat sat on the mat", "the cat")]
    stored = tokenize_corpus(pairs, tokenizer, tokenizer, tmp_path / "ids", workers=1)
    assert stored.source(0).tolist() == tokenizer.encode(pairs[0][0])
    with pytest.raises(TokenizerError, match=f"it has {len(whole)} ids, not {whole.unknown}"):
        whole.with_size(whole.unknown)  # the unknown token itself would be missing


def test_dropout_of_the_file_is_off(tmp_path):
    path = save_style("byte-level", tmp_path)
    expected = Tokenizer.load(path)
    document = json.loads(path.read_text())
    document["model"]["dropout"] = 0.9
    path.write_text(json.dumps(document))
    assert all(Tokenizer.load(path).encode(line) == expected.encode(line) for line in LINES)


def test_damaged_files_are_refused(tmp_path):
    path = save_style("sentencepiece", tmp_path)
    document = json.loads(path.read_text())
    for change, reason in (
        ({"model": {"type": "Mystery"}}, "is not a valid tokenizer.json"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA"}}, "is not a valid"),
        ({"pre_tokenizer": {"type": "Metaspace", "replacement": "too long"}}, "is not a valid"),
    ):
        path.write_text(json.dumps({**document, **change}))
        with pytest.raises(TokenizerError, match=reason):
            Tokenizer.load(path)
    vocabulary = {"<unk>": 0, "a": 4_000_000_000}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    path.write_text(json.dumps({**document, "model": model, "added_tokens": []}))
    with pytest.raises(TokenizerError, match="its 2 tokens have ids up to 4,000,000,000"):
        Tokenizer.load(path)
