"""`regard quantize`: the int8 bundle, its card, and the engines that read it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import regard
from regard import bundle
from regard.bundle.model_files import unique_parameters
from regard.errors import RegardError
from regard.int8 import SCALE_SUFFIX
from regard.native import unavailable
from tests.commands.small import Quiet, pairs, written
from tests.commands.small import regard as command

TINY = {"width": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 64}
RUN = {"steps": 60, "batch_tokens": 256, "evaluations": 1, "dropout": 0.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that partly learned to reverse strings."""
    out = tmp_path_factory.mktemp("run")
    regard.train(pairs(500, seed=1), out, **TINY, **RUN, display=Quiet())
    return out


@pytest.fixture(scope="module")
def quantised(run) -> bundle.Bundle:
    """The int8 bundle of the run."""
    return regard.quantize(run).bundle


def test_weights_are_integers_a_quarter_of_the_size(run, quantised):
    assert quantised.folder == run / "bundle-int8"
    stored = load_file(run / "bundle-int8/weights.safetensors")
    exact = load_file(run / "bundle/weights.safetensors")
    for name, weight in exact.items():
        if weight.ndim < 2:
            assert stored[name].tolist() == weight.tolist()
            continue
        scales = np.abs(weight.astype(np.float64)).max(1, keepdims=True) / 127
        assert stored[name].dtype == np.int8
        assert np.abs(stored[name] - weight / scales).max() <= 0.5001
        np.testing.assert_allclose(stored[name + SCALE_SUFFIX], scales[:, 0], rtol=1e-6)
    sizes = [sum(one.nbytes for one in tensors.values()) for tensors in (exact, stored)]
    assert sizes[0] > 3 * sizes[1]


def test_torch_loads_dequantised_weights(run, quantised):
    stored = load_file(run / "bundle-int8/weights.safetensors")
    for name, weight in unique_parameters(quantised.model).items():
        if name + SCALE_SUFFIX in stored:
            expected = stored[name].astype(np.float32) * stored[name + SCALE_SUFFIX][:, None]
            assert torch.equal(weight, torch.from_numpy(expected))
    pipeline = regard.load(run / "bundle-int8", engine="torch", precision="float32")
    assert pipeline("abcd").text
    assert pipeline.score("abcd", "dcba").logp < 0


def test_the_card_reports_size_and_loss(run, quantised):
    facts = quantised.card["quantization"]
    assert quantised.card["precision"] == "int8"
    assert facts["engine"] == ("native" if unavailable() is None else TORCH)
    for kind, name in (("float32", "bundle"), ("int8", "bundle-int8")):
        assert facts["bytes"][kind] == (run / name / "weights.safetensors").stat().st_size
    rows = [line for line in (run / "held_out.jsonl").read_text().splitlines() if line]
    assert facts["held_out"] == len(rows)
    held_out = {one: one[::-1] for one in (regard_source(row) for row in rows)}
    report = regard.evaluate(run, list(held_out.items()))
    assert facts["float32"]["sequence_accuracy"] == pytest.approx(report["sequence_accuracy"])
    assert abs(facts["int8"]["sequence_accuracy"] - report["sequence_accuracy"]) < 10
    text = (run / "bundle-int8/README.md").read_text()
    assert f"of {len(rows)} held-out sources" in text
    assert "| weights (bytes) |" in text


TORCH = "torch, with float32 activations"


def regard_source(row: str) -> str:
    import json

    return json.loads(row)["source"]


@pytest.mark.skipif(unavailable() is not None, reason="the native engine is not compiled")
def test_the_native_engine_runs_int8_bundles(run, quantised):
    pipeline = regard.load(run / "bundle-int8")
    assert pipeline.engine == "native"
    exact = regard.load(run, engine="torch")
    words = [source for source, _ in pairs(60, seed=5)]
    ours = [one.text for one in pipeline.many(words)]
    theirs = [one.text for one in exact.many(words)]
    assert sum(one == other for one, other in zip(ours, theirs, strict=True)) >= 50
    assert pipeline.score("abcd", "dcba").logp < 0


def test_saving_an_int8_bundle_again_keeps_its_integers(run, quantised, tmp_path):
    bundle.save(tmp_path / "again", quantised)
    ours = load_file(tmp_path / "again/weights.safetensors")
    for name, weight in load_file(run / "bundle-int8/weights.safetensors").items():
        if weight.dtype == np.int8:
            assert ours[name].tolist() == weight.tolist()
        else:
            np.testing.assert_allclose(ours[name], weight, rtol=2e-7)


def test_fine_tuning_an_int8_bundle_gives_float32(run, quantised, tmp_path):
    out = tmp_path / "run"
    made = regard.train(pairs(100, seed=2), out, init=run / "bundle-int8", steps=1, display=Quiet())
    assert "precision" not in made.bundle.card
    assert {one.dtype for one in load_file(out / "bundle/weights.safetensors").values()} == {
        np.dtype(np.float32)
    }


def test_the_command_needs_held_out_pairs(run, tmp_path, capsys):
    shutil.copytree(run / "bundle", tmp_path / "alone")
    _, error = command(capsys, "quantize", tmp_path / "alone", code=2)
    assert error.endswith("pass some with --held-out FILE\n")
    data = written(tmp_path / "test.tsv", pairs(40, seed=3))
    printed, _ = command(capsys, "quantize", tmp_path / "alone", "--held-out", data)
    assert "of 40 held-out outputs differ" in printed
    assert (tmp_path / "alone-int8/manifest.json").exists()
    printed, _ = command(capsys, "inspect", tmp_path / "alone-int8")
    assert "precision of the weights: int8" in printed
    with pytest.raises(RegardError, match=r"is an int8 bundle already; give the float32 bundle"):
        regard.quantize(tmp_path / "alone-int8", held_out=data)


@pytest.mark.parametrize("change", ["scale", "dtype"])
def test_damaged_int8_weights_are_refused(quantised, change, tmp_path):
    from safetensors.numpy import save_file

    from regard.bundle.manifest import build_manifest, write_json

    home = tmp_path / "bad"
    shutil.copytree(quantised.folder, home)
    tensors = load_file(home / "weights.safetensors")
    name = "source.table"
    if change == "scale":
        del tensors[name + SCALE_SUFFIX]
    else:
        tensors[name + SCALE_SUFFIX] = tensors[name + SCALE_SUFFIX].astype(np.float16)
    save_file(tensors, home / "weights.safetensors")
    (home / "manifest.json").unlink()
    write_json(home / "manifest.json", build_manifest(home))
    with pytest.raises(RegardError, match=r"weights.safetensors' is invalid in this bundle"):
        bundle.load(home)
