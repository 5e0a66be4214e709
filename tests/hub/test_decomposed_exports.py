"""Exports of a model whose tokens are letters, marks, jamo and tags."""

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import torch

import regard
from regard import bundle
from regard.config import ModelSettings, parse
from regard.hub.hf_export import write_hf
from regard.hub.hf_model import HFModel
from regard.models import build
from regard.text import train_tokenizer
from regard.text.tags import TagSet
from regard.text.tokenizer_training import TextForm
from tests.hub.hub_models import CARD, TINY

WORDS = ["한국 N;PL", "né V;SG", "각 N;SG"]
MARIAN = {"position": "sinusoidal", "norm_order": "post", "activation": "relu"}
TAGS = TagSet((), (" N", " V", ";PL", ";SG"), "")


def decomposed_bundle(**settings) -> bundle.Bundle:
    """A random model that spells both sides in NFD."""
    torch.manual_seed(1)
    source = train_tokenizer("characters", WORDS, form=TextForm(True, TAGS))
    target = train_tokenizer("characters", ["한국 né"], form=TextForm(True))
    sizes = TINY if "kind" not in settings else {"width": 16}
    made = parse(ModelSettings, {**sizes, **settings}, "model")
    model = build(made, len(source), len(target)).eval()
    card = {**CARD, "samples": [["né N;PL", "né", "né"]]}
    return bundle.Bundle(model, source, target, made, card)


def test_a_bundle_keeps_the_decomposition(tmp_path: Path):
    bundle.save(tmp_path / "model", decomposed_bundle())
    loaded = bundle.load(tmp_path / "model")
    assert loaded.source.is_decomposed
    assert [piece.text for piece in loaded.source.pieces("né N;PL")] == [
        *("n", "e", "\u0301"),
        *(" N", ";PL"),
    ]


def test_both_engines_give_composed_outputs(tmp_path: Path):
    bundle.save(tmp_path / "model", decomposed_bundle())
    outputs = {
        engine: list(map(regard.load(tmp_path / "model", engine=engine), WORDS))
        for engine in ("torch", "native")
    }
    for one, other in zip(*outputs.values(), strict=True):
        assert one.text == other.text == unicodedata.normalize("NFC", one.text)
        assert unicodedata.normalize("NFC", "".join(one.tokens)) == one.text


def test_loaded_tokenizers_give_the_same_ids(tmp_path: Path):
    made = decomposed_bundle(**MARIAN)
    write_hf(made, tmp_path)
    loaded = HFModel(tmp_path, made)
    for text in [*WORDS, "각국 V;PL", "nésé N;XX"]:
        assert loaded.encode(text) == [*made.source.encode(text), 2]


@pytest.mark.parametrize("to", ["hf", "ctranslate2"])
def test_the_card_says_how_to_compose(to: str, tmp_path: Path):
    bundle.save(tmp_path / "model", decomposed_bundle(**MARIAN))
    regard.export(tmp_path / "model", to, tmp_path / "out")
    assert 'unicodedata.normalize("NFC", text)' in (tmp_path / "out" / "README.md").read_text()


def test_the_onnx_runner_composes(tmp_path: Path):
    made = decomposed_bundle(kind="recurrent", attention="none")  # traced in the shortest time
    bundle.save(tmp_path / "model", made)
    regard.export(tmp_path / "model", "onnx", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["compose"] is True
    run = subprocess.run(
        [sys.executable, str(tmp_path / "out" / "run_onnx.py"), *WORDS, "--beam", "1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    pipeline = regard.load(tmp_path / "model", engine="torch")
    assert run.stdout.splitlines() == [pipeline(word, beam=1).text for word in WORDS]
