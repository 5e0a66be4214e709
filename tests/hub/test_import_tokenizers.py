"""Tokenizer files of Hugging Face models: the imported tokenizer splits texts as the original."""

import json
from pathlib import Path
from typing import Any

import pytest

from regard.errors import RegardError
from regard.hub.checkpoint_folder import CheckpointFolder
from regard.hub.import_template import ChosenLanguages, complete_template
from regard.hub.sentencepiece_model import SentencePieceError, SentencePieceModel
from regard.hub.tokenizer_conversion import tokenizer_documents
from regard.hub.tokenizer_documents import find_merges
from regard.hub.tokenizer_files import TokenizerFiles
from regard.text.template import Template
from regard.text.tokenizers import Tokenizer

pytest.importorskip("sentencepiece")
pytest.importorskip("sacremoses")

from benchmarks.interchange_tokenizers import (
    LANGUAGES,
    WRITERS,
    count_differences,
    mixed_lines,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that are compared


@pytest.mark.parametrize("kind", WRITERS)
def test_1000_lines_are_split_as_by_the_original(kind: str, tmp_path: Path):
    different, lines = count_differences(kind, tmp_path, mixed_lines())
    assert lines > 1_000
    assert different == 0


def imported(folder: Path, family: str, size: int = 10_000) -> tuple[Tokenizer, dict[str, Any]]:
    files = TokenizerFiles(CheckpointFolder(folder), (size, size))
    definition = tokenizer_documents(files, family)[0]
    return Tokenizer.from_json(json.dumps(definition)).with_size(size), definition


@pytest.mark.parametrize("kind", ["marian", "m2m100", "t5", "bart", "byt5"])
def test_texts_survive_encoding_and_decoding(kind: str, tmp_path: Path):
    WRITERS[kind](tmp_path)
    family = {"m2m100": "m2m_100", "byt5": "t5"}.get(kind, kind)
    tokenizer, _ = imported(tmp_path, family)
    for text in ("the quick brown fox", "attention is all you need"):
        assert tokenizer.decode(tokenizer.encode(text)).strip() == text


def template_of(folder: Path, family: str, start: Template, **chosen: str) -> Template:
    tokenizer, definition = imported(folder, family)
    files = TokenizerFiles(CheckpointFolder(folder), (10_000, 10_000))
    languages = ChosenLanguages(**chosen)
    return complete_template(start, family, files, definition, tokenizer, languages)


def test_language_tokens_of_nllb(tmp_path: Path):
    WRITERS["nllb"](tmp_path)
    tokenizer, _ = imported(tmp_path, "m2m_100")
    english, german, french = (tokenizer.library.token_to_id(code) for code in LANGUAGES)
    start = Template(end=2, start=(2,), source_suffix=(2,))
    made = template_of(tmp_path, "m2m_100", start, target="deu_Latn")
    assert (made.source_prefix, made.source_suffix, made.start) == ((english,), (2,), (2, german))
    assert made.unknown == 3
    assert made.for_languages("deu_Latn", "fra_Latn").start == (2, french)
    with pytest.raises(RegardError, match="unknown target language 'deu_Latin'; did you mean"):
        template_of(tmp_path, "m2m_100", start, target="deu_Latin")


def test_language_tokens_of_mbart(tmp_path: Path):
    WRITERS["mbart"](tmp_path)
    tokenizer, _ = imported(tmp_path, "mbart")
    english, romanian = (tokenizer.library.token_to_id(code) for code in ("en_XX", "ro_RO"))
    start = Template(end=2, start=(romanian,), source_suffix=(2,))  # as in mbart-large-en-ro
    made = template_of(tmp_path, "mbart", start)
    assert (made.source_prefix, made.source_suffix) == ((), (2, english))
    assert made.start == (romanian,)


def test_language_tokens_of_mbart_50(tmp_path: Path):
    WRITERS["mbart50"](tmp_path)
    tokenizer, _ = imported(tmp_path, "mbart")
    english, polish = (tokenizer.library.token_to_id(code) for code in ("en_XX", "pl_PL"))
    start = Template(end=2, start=(2,), source_suffix=(2,))
    made = template_of(tmp_path, "mbart", start, target="pl_PL")
    assert (made.source_prefix, made.source_suffix) == ((english,), (2,))
    assert made.start == (2, polish)


def test_target_languages_of_marian(tmp_path: Path):
    WRITERS["marian"](tmp_path)
    tokenizer, _ = imported(tmp_path, "marian")
    french = tokenizer.library.token_to_id(">>fra<<")
    start = Template(end=0, start=(9,), source_suffix=(0,))
    assert template_of(tmp_path, "marian", start).source_prefix == ()
    assert tokenizer.encode(">>fra<< the fox")[0] == french
    assert template_of(tmp_path, "marian", start, target="fra").source_prefix == (french,)


def test_models_without_languages_refuse_them(tmp_path: Path):
    WRITERS["t5"](tmp_path)
    with pytest.raises(RegardError, match="it has no language tokens; leave out --source-language"):
        template_of(tmp_path, "t5", Template(), target="de")


def test_merges_by_hand():
    pieces = {"a": -4.0, "b": -3.0, "ab": -1.0, "aba": -2.0, "bab": 0.0}
    assert find_merges(pieces) == [("b", "ab"), ("a", "b"), ("ab", "a")]


def message(field: int, content: bytes) -> bytes:
    """A field of a protocol buffer, written by hand."""
    return bytes([field << 3 | 2, len(content)]) + content


def test_a_sentencepiece_model_by_hand():
    piece = message(1, b"\xe2\x96\x81a") + b"\x15\x00\x00\x00\xc0" + b"\x18\x04"  # ▁a, −2, type 4
    trainer = b"\x18\x02"  # BPE
    normaliser = message(2, b"map") + b"\x18\x00"  # without the space at the start
    content = message(1, piece) + message(2, trainer) + message(3, normaliser)
    model = SentencePieceModel.parse(content)
    assert [tuple(vars(one).values()) for one in model.pieces] == [("▁a", -2.0, 4)]
    assert (model.kind, model.charsmap, model.add_prefix) == (2, b"map", False)
    assert model.strip_spaces
    for damaged in (b"", content[:-1], b"\xff" * 12, b"\x0b", message(1, b"\x0a\x05a")):
        with pytest.raises(SentencePieceError):
            SentencePieceModel.parse(damaged)


DAMAGES = {
    "ids": ("vocab.json", '{"a": 0, "b": 2}', "'vocab.json' does not number its tokens from 0 on"),
    "text-ids": ("vocab.json", '{"a": "0"}', "'vocab.json' does not number its tokens from 0 on"),
    "unknown": ("vocab.json", '{"a": 0}', "'vocab.json' has no token '<unk>'"),
    "pieces": ("source.spm", "\x0b", "'source.spm': it is not a SentencePiece model"),
    "missing": ("target.spm", None, "it has no 'target.spm'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_tokenizer_files_are_named(damage: str, tmp_path: Path):
    WRITERS["marian"](tmp_path)
    name, content, expected = DAMAGES[damage]
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(RegardError, match=expected):
        imported(tmp_path, "marian")
