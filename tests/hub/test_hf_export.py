"""Hugging Face export: the loaded folder's logits, outputs and texts against the model's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import regard
from regard import bundle
from regard.errors import RegardError
from regard.hub import ExportError, verify_logits
from regard.hub.hf_conversion import UNCHECKED
from regard.hub.hf_export import choose_layout, write_hf
from regard.hub.hf_model import HFModel
from regard.hub.verification import reference_logits
from regard.inference import search_all
from regard.search import Beam, Greedy, LengthPenalty
from tests.commands.small import regard as command
from tests.hub.hub_models import FOREIGN, random_bundle

transformers = pytest.importorskip("transformers")

SMALL = {"encoder_layers": 1, "decoder_layers": 1}
ADDED = {**SMALL, "position": "learned", "activation": "relu"}
RMS = {**SMALL, "norm": "rms", "biases": False, "position": "t5", "activation": "relu"}
LIMIT = 12
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Blenderbot", ADDED),
    ("Blenderbot", {**ADDED, "position": "sinusoidal", "kv_heads": 1, "tie_embeddings": "none"}),
    ("Blenderbot", {**ADDED, "position": "none", "biases": False, "activation": "gelu-tanh"}),
    ("Blenderbot", {**ADDED, "score": "general", "output_bias": True, "embedding_scale": 3.0}),
    ("mBART", {**ADDED, "embedding_norm": True, "activation": "silu", "embedding_scale": 1.0}),
    ("mBART", {**ADDED, "embedding_norm": True, "template": FOREIGN}),
    ("BART", {**ADDED, "embedding_norm": True, "norm_order": "post", "activation": "gelu"}),
    ("Marian", {**SMALL, "position": "sinusoidal", "norm_order": "post", "activation": "relu"}),
    ("Marian", {**SMALL, "position": {"kind": "sinusoidal", "order": "halves"},
                "norm_order": "post", "activation": "silu", "tie_embeddings": "none",
                "output_bias": True}),
    ("T5", {**RMS, "shared": True}),
    ("T5", {**RMS, "shared": True, "tie_embeddings": "all", "activation": "geglu", "dim": 5}),
    ("T5", {**RMS, "shared": True, "tie_embeddings": "inputs", "activation": "swiglu"}),
    ("T5", {**RMS, "shared": True, "position": "alibi", "window": 3, "score": "dot"}),
    ("T5", {**RMS, "shared": True, "position": {"kind": "distance", "max_distance": 3},
            "tie_embeddings": "none", "kv_heads": 1, "norm_eps": 1e-5, "activation": "gelu"}),
]  # fmt: skip


class EndAtLimit(transformers.LogitsProcessor):
    """At the limit only END is allowed, with its own log-probability, as in Regard."""

    def __init__(self, made: bundle.Bundle) -> None:
        self.end, self.longest = made.template.end, LIMIT + len(made.template.start)

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if ids.shape[1] < self.longest:
            return scores
        return torch.where(torch.arange(scores.shape[1]) == self.end, scores, -torch.inf)


@pytest.mark.parametrize(("layout", "settings"), CASES, ids=str)
def test_the_loaded_folder_gives_the_same_outputs(
    layout: str, settings: dict[str, Any], tmp_path: Path
):
    made = random_bundle(**settings)
    assert write_hf(made, tmp_path)[0] == layout
    loaded = HFModel(tmp_path, made)
    draw = np.random.default_rng(3)
    for source_length, target_length in ((1, 1), (2, 7), (14, 11)):
        source = draw.integers(3, len(made.source), source_length).tolist()
        target = draw.integers(3, len(made.target), target_length).tolist()
        np.testing.assert_allclose(
            loaded.logits(source, target), reference_logits(made, source, target), atol=2e-5
        )
    given = [draw.integers(3, len(made.source), n).tolist() for n in (1, 2, 3, 4, 6, 8, 12)]
    for beam, alpha in ((1, 0.0), (4, 0.0), (4, 1.0)):
        search = Greedy() if beam == 1 else Beam(beam, 1, LengthPenalty(alpha))
        limits: dict[str, Any] = {"max_length": LIMIT, "ratio": LIMIT}
        results = search_all(search, made.model, given, **limits, template=made.template)
        options = {"length_penalty": alpha, "logits_processor": [EndAtLimit(made)]}
        found = loaded.generate(given, limit=LIMIT, beam=beam, **options)
        for result, ids in zip(results, found, strict=True):
            assert ids == result.hypotheses[0].ids or result.is_close, (beam, alpha)
    verify_logits(made, loaded, ["ab c", "gh"]).check()


def test_texts_go_through_the_loaded_tokenizers(tmp_path: Path):
    made = random_bundle(**ADDED)
    write_hf(made, tmp_path)
    loaded = HFModel(tmp_path, made)
    for text in ("ab c", "dé f", "gh", "zz a"):
        assert loaded.encode(text) == [*made.source.encode(text), 2]
    ids = made.target.encode("gh ijkl")
    assert loaded.decode([1, *ids, 2, 1]) == made.target.decode(ids) == "gh ijkl"
    padded = loaded.source(["ab c", "g"], padding=True)
    assert [sum(mask) for mask in padded.attention_mask] == [5, 2]


def test_batches_with_padding_give_the_same_outputs(tmp_path: Path):
    made = random_bundle(**ADDED)
    write_hf(made, tmp_path)
    loaded, texts = HFModel(tmp_path, made), ["ab c", "gh", "ijkl m dé"]
    given = loaded.source(texts, padding=True, return_tensors="pt")
    found = loaded.model.generate(**given, max_new_tokens=9, num_beams=1)
    for text, row in zip(texts, found.tolist(), strict=True):
        (alone,) = loaded.generate([made.source.encode(text)], limit=8, beam=1)
        assert row[1 : 1 + len(alone)] == alone


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"Blenderbot, model.position must be 'learned', 'sinusoidal' or 'none', not 'rotary',"
             r" model.activation must be 'relu', 'gelu', 'gelu-tanh' or 'silu', not 'swiglu'"),
        ({**ADDED, "norm_order": "post"},
         "Blenderbot, model.norm_order must be 'pre', not 'post'"),
        ({**RMS, "biases": True, "shared": True}, "T5, model.biases must be False, not True"),
        ({**ADDED, "normaliser": "entmax"}, "model.normaliser must be 'softmax', not 'entmax'"),
        ({**ADDED, "window": 3}, "model.window must be None, not 3"),
        ({"kind": "recurrent"}, "model.kind must be transformer, not recurrent; use --to onnx"),
        (RMS, "T5, text.shared_vocabulary must be True, not False"),
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_fit_no_class_are_named(settings: dict[str, Any], message: str):
    with pytest.raises(RegardError, match=f"no class of transformers fits this model.*({message})"):
        choose_layout(random_bundle(**settings))


def test_an_altered_export_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, other = random_bundle(**ADDED), random_bundle(**ADDED)
    with torch.no_grad():
        other.model.encoder[0].feed_forward.outer.weight[3] += 0.05
    bundle.save(tmp_path / "model", made)
    monkeypatch.setattr(
        "regard.hub.hf_conversion.write_hf", lambda _, folder: write_hf(other, folder)
    )
    with pytest.raises(ExportError, match="differs from the original"):
        regard.export(tmp_path / "model", "hf", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_command_reports_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bundle.save(tmp_path / "model", random_bundle(**ADDED))
    words = ["export", str(tmp_path / "model"), "--to", "hf", "--out", str(tmp_path / "out")]
    printed, _ = command(capsys, *words)
    facts = json.loads((tmp_path / "out" / "card.json").read_text())["export"]
    assert facts["layout"] == "Blenderbot"
    assert facts["largest_difference"] <= 1e-5
    assert f"{facts['texts']} texts: logits differ by at most" in printed
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert "model.encoder.layers.0.self_attn.q_proj.weight" in file.keys()  # noqa: SIM118


def test_without_transformers_the_card_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("regard.hub.hf_conversion.find_spec", lambda name: None)
    bundle.save(tmp_path / "model", random_bundle(**ADDED))
    words = ["export", str(tmp_path / "model"), "--to", "hf", "--out", str(tmp_path / "out")]
    printed, _ = command(capsys, *words)
    assert UNCHECKED in printed
    assert json.loads((tmp_path / "out" / "card.json").read_text())["export"]["check"] == UNCHECKED
    assert UNCHECKED.capitalize() in (tmp_path / "out" / "README.md").read_text()
