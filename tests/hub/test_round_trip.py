"""Hugging Face → Regard → Hugging Face: the weights are those of the original, bit for bit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.hub.hf_export import write_hf
from regard.hub.hf_import import import_checkpoint
from regard.hub.hf_model import HFModel
from regard.hub.verification import verify_logits
from tests.hub.hf_folders import hf_folder

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
