"""Hugging Face → Regard → Hugging Face: the weights are those of the original, bit for bit.

Regard → Hugging Face → Regard: the scores are those of the original.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard import bundle
from regard.errors import RegardError
from regard.hub.hf_export import write_hf
from regard.hub.hf_import import import_checkpoint
from regard.hub.hf_model import HFModel
from regard.hub.verification import verify_logits
from tests.hub.hf_folders import hf_folder
from tests.hub.hub_models import FOREIGN, random_bundle

pytest.importorskip("transformers")
WEIGHTS = "model.safetensors"


@pytest.mark.parametrize(
    ("name", "size", "layout"),
    [
        ("blenderbot", 0, "Blenderbot"),
        ("blenderbot", 2, "Blenderbot"),
        ("marian", 0, "Marian"),
        ("marian-two-vocabularies", 0, "Marian"),
        ("bart", 0, "BART"),
        ("mbart", 0, "mBART"),
        ("t5", 0, "T5"),  # √dim = 4 and √width = 8: their factors are exact
        ("t5-1.1", 0, "T5"),
        ("mt5", 0, "T5"),
    ],
)
def test_weights_survive_the_round_trip(tmp_path: Path, name: str, size: int, layout: str):
    folder, _ = hf_folder(tmp_path / "original", name, size)
    out = tmp_path / "again"
    out.mkdir()
    assert write_hf(import_checkpoint(folder), out)[0] == layout
    before, after = load_file(folder / WEIGHTS), load_file(out / WEIGHTS)
    for key, tensor in before.items():
        if name.endswith("bart") and "embed_positions" in key:
            tensor[:2] = 0  # no position reads these rows
        assert torch.equal(after[key], tensor), key
    copies = {"lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    copies |= {f"model.{key}" for key in copies}
    assert set(after) - set(before) <= copies


@pytest.mark.parametrize("name", ["m2m_100", "pegasus"])
def test_other_families_come_back_as_blenderbot(tmp_path: Path, name: str):
    folder, _ = hf_folder(tmp_path / "original", name, 1)
    made, out = import_checkpoint(folder), tmp_path / "again"
    out.mkdir()
    assert write_hf(made, out)[0] == "Blenderbot"
    verify_logits(made, HFModel(out, made), []).check()


SMALL = {"encoder_layers": 1, "decoder_layers": 1, "activation": "relu", "shared": True}
LEARNED = {**SMALL, "position": {"kind": "learned", "max_length": 40}}
MARIAN = {**SMALL, "position": "sinusoidal", "norm_order": "post"}
T5 = {**SMALL, "norm": "rms", "biases": False, "position": "t5", "tie_embeddings": "all"}


@pytest.mark.parametrize("settings", [LEARNED, MARIAN, T5], ids=["Blenderbot", "Marian", "T5"])
def test_an_exported_model_is_imported_again(tmp_path: Path, settings: dict):
    bundle.save(tmp_path / "model", random_bundle(**settings))
    regard.export(tmp_path / "model", "hf", tmp_path / "hf")
    regard.import_model(tmp_path / "hf", tmp_path / "again")
    before, after = (regard.load(tmp_path / name, engine="torch") for name in ("model", "again"))
    assert after.bundle.card["task"] == before.bundle.card["task"] == "symbols"
    for source, target in (("ab c", "gh"), ("dé f", "é"), ("m", "")):
        expected, found = (one.score(source, target).logps for one in (before, after))
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shared": False}, "vocabularies of different sizes, stored as one; use the bundle that"),
        (
            {"template": FOREIGN},
            "its tokenizer has special tokens of its own, '.+'; use the bundle",
        ),
    ],
)
def test_what_cannot_come_back_names_the_bundle(tmp_path: Path, changes: dict, message: str):
    bundle.save(tmp_path / "model", random_bundle(**{**LEARNED, **changes}))
    regard.export(tmp_path / "model", "hf", tmp_path / "hf")
    with pytest.raises(RegardError, match=message):
        regard.import_model(tmp_path / "hf", tmp_path / "again")
