"""The choice of the decoding engine: what "auto" selects, and what an explicit request refuses."""

import re
import shutil
from pathlib import Path

import pytest
import torch

import regard
from regard import bundle, engine_choice, gpu_driver
from regard.config import RecurrentSettings, TransformerSettings
from regard.errors import EngineError, RegardError, UnknownName
from regard.models import build
from regard.native import gate, library
from regard.pretrained import MODELS
from regard.text import train_tokenizer
from tests.native_build import require_native_engine

SAID = "AH T EH N SH AH N"


@pytest.fixture(autouse=True, scope="module")
def _native():
    require_native_engine()


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> str:
    """As on a machine without a compiler; returns the reason."""
    reason = "the native engine is missing: no C++ compiler was found"
    monkeypatch.setattr(library, "unavailable", lambda: reason)
    return reason


def load(name: str | Path = "spelling", **options) -> regard.Pipeline:
    return regard.load(name, device="cpu", **options)


def save_bundle(folder: Path, **settings: object) -> Path:
    """A bundle of a tiny model with random weights."""
    settings = TransformerSettings(
        width=8,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        ffn_width=8,
        **settings,
    )
    source, target = (train_tokenizer("characters", [text]) for text in ("abcd", "ABCD"))
    model = build(settings, len(source), len(target)).eval()
    bundle.save(folder, bundle.Bundle(model, source, target, settings, {}))
    return folder


def test_auto_is_native_on_a_cpu():
    assert load().engine == "native"
    assert load().refused_engines == {}
    assert load(engine="torch").engine == "torch"
    assert load("spelling-recurrent")("attention").text == SAID


def test_both_engines_give_the_same_numbers():
    ours, theirs = (load(engine=name)("attention") for name in ("native", "torch"))
    assert ours.ids == theirs.ids
    assert ours.logps == pytest.approx(theirs.logps, abs=1e-4)


def test_without_the_engine_everything_runs_on_torch(missing: str, capsys):
    pipeline = load()
    assert (pipeline.engine, pipeline("attention").text) == ("torch", SAID)
    assert pipeline.refused_engines == {"native": missing}
    with pytest.raises(EngineError, match=re.escape(missing)):
        load(engine="native")
    from regard.cli import main

    for words, expected in (
        (["--version"], f"{regard.__version__}\n{missing}\n"),
        (["predict", "spelling", "attention"], f"{SAID}\n"),
    ):
        with pytest.raises(SystemExit, match="0"):
            main(words)
        assert capsys.readouterr().out == expected


def test_an_unknown_engine_suggests_a_known_one():
    with pytest.raises(UnknownName, match="unknown engine 'nativ'; did you mean 'native'"):
        load(engine="nativ")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"normaliser": "sparsemax"}, "model.normaliser = softmax, not 'sparsemax'"),
        ({"score": "cosine"}, "model.score = scaled-dot or dot, not 'cosine'"),
        ({"attention_backend": "reference"}, "model.attention_backend = 'reference'"),
    ],
    ids=str,
)
def test_an_unsupported_part_is_named(settings: dict, reason: str, tmp_path: Path):
    folder = save_bundle(tmp_path / "bundle", **settings)
    pipeline = load(folder)
    assert pipeline.engine == "torch"
    assert reason in pipeline.refused_engines["native"]
    with pytest.raises(EngineError, match=reason):
        load(folder, engine="native")


def test_an_ensemble_is_named():
    both = ["spelling", "spelling"]
    assert load(both).engine == "torch"
    with pytest.raises(EngineError, match="this Ensemble is in memory"):
        load(both, engine="native")


def test_precision_and_device_are_named(monkeypatch: pytest.MonkeyPatch):
    assert load(precision="bfloat16").engine == "torch"
    with pytest.raises(EngineError, match="it computes in float32 or int8, not bfloat16"):
        load(engine="native", precision="bfloat16")
    with pytest.raises(EngineError, match="it runs on CPUs, not on device 'cuda'"):
        regard.load("spelling", engine="native", device="cuda")
    with pytest.raises(EngineError, match="it computes in float32 or bfloat16, not int8"):
        load(engine="torch", precision="int8")


def test_int8_runs_on_the_native_engine():
    exact, quantised = load(), load(precision="int8")
    assert quantised.engine == "native"
    ours, theirs = quantised("attention"), exact("attention")
    assert ours.text == SAID
    assert ours.logps != theirs.logps
    assert ours.logps == pytest.approx(theirs.logps, abs=0.1)


def test_an_int8_bundle_runs_in_int8_or_warns(tmp_path: Path, request):
    stored = bundle.load(MODELS / "spelling")
    stored.card["precision"] = "int8"
    bundle.save(tmp_path / "int8", stored)
    ours, theirs = (one("attention").logps for one in (load(tmp_path / "int8"), load()))
    assert ours != theirs
    assert ours == pytest.approx(theirs, abs=0.1)
    request.getfixturevalue("missing")
    with pytest.warns(UserWarning, match="float32 instead of int8: the native engine is missing"):
        pipeline = load(tmp_path / "int8")
    assert (pipeline.engine, pipeline("attention").text) == ("torch", SAID)


def test_changed_weights_are_searched_by_torch():
    auto, native = load(), load(engine="native")
    for pipeline in (auto, native):
        scored, found = pipeline.score("attention", SAID), pipeline("attention")
        assert scored.logp == pytest.approx(found.logp, abs=1e-4)
        assert pipeline.engine == "native"
        with torch.no_grad():
            pipeline.model.output.table.mul_(0.9)
    assert auto.engine == "torch"
    changed = auto("attention")
    assert changed.logp == pytest.approx(auto.score("attention", changed.text).logp, abs=1e-4)
    with pytest.raises(EngineError, match="the model was changed after it was loaded"):
        native("attention")


def test_a_search_algorithm_runs_on_torch():
    pipeline, greedy = load(), load().search(beam=1)
    assert pipeline("attention", greedy).text == SAID
    with pytest.raises(EngineError, match="it does not run a Greedy object; pass options"):
        load(engine="native")("attention", greedy)


def test_debug_checks_scores_on_torch():
    pipeline = load()
    with regard.debug():
        assert pipeline.engine == "torch"
    assert pipeline.engine == "native"


def test_weights_that_are_not_finite_are_reported(tmp_path: Path):
    stored = bundle.load(MODELS / "spelling")
    with torch.no_grad():
        stored.model.source.table.fill_(float("nan"))
    bundle.save(tmp_path / "nan", stored)
    for options in ({}, {"beam": 1}):
        with pytest.raises(RegardError, match="the model's outputs are not finite"):
            load(tmp_path / "nan", engine="native")("cat", **options)


def test_a_model_replaced_on_disk_is_not_mixed_in(tmp_path: Path):
    folder = Path(shutil.copytree(MODELS / "spelling", tmp_path / "model"))
    pipeline = load(folder)
    bundle.save(folder, bundle.load(MODELS / "spelling-recurrent"))
    assert pipeline("attention").text == SAID
    with pytest.raises(bundle.BundleError, match="was replaced after it was loaded; load the"):
        pipeline.align("attention")


def test_the_gate_knows_every_setting_of_the_families():
    for settings in (TransformerSettings(), RecurrentSettings()):
        values = settings.model_dump(mode="json")
        assert values.keys() == gate.SETTINGS[settings.kind]
        assert gate.cannot(values) is None
        for name in values:
            rest = {key: value for key, value in values.items() if key != name}
            reason = gate.cannot(rest)
            # older bundles lack the settings that have defaults
            assert reason is None if name in gate.DEFAULTS else name in str(reason)
        assert gate.cannot({**values, "depth": 3}) == "model.depth is unknown"
        assert gate.cannot({**values, "width": "wide"}) == "it does not know model.width = 'wide'"


def test_a_gpu_is_looked_for_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu_driver.sys, "platform", "linux")
    monkeypatch.setattr(gpu_driver, "DEVICE_FILES", [str(tmp_path / "gpu")])
    assert not gpu_driver.may_have_gpu()
    (tmp_path / "gpu").touch()
    assert gpu_driver.may_have_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert not gpu_driver.may_have_gpu()


def test_an_added_engine_runs_on_request_only(monkeypatch: pytest.MonkeyPatch):
    entry = engine_choice.DECODING_ENGINES["torch"]
    other = engine_choice.EngineEntry(entry.cannot, entry.open, automatic=False)
    monkeypatch.setitem(engine_choice.DECODING_ENGINES, "other", other)
    assert load(engine="other")("attention").text == SAID
    assert load().engine == "native"
