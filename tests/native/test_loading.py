"""Loading: refusals by name, damaged weights, and no torch in the process."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from regard.config import ModelSettings, parse
from regard.native import NativeModel, NativeOptions, cannot, read_tensors, unavailable
from regard.native import library as native_library
from regard.native.library import NativeError
from regard.native.position_tables import LEARNED_POSITIONS, t5_buckets
from regard.native.weights_file import WeightsError
from regard.positions import T5, Learned
from regard.pretrained import MODELS
from tests.native.native_models import SIZES, TINY, TINY_RECURRENT, random_pair


def full(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with all defaults, as in a bundle's config."""
    return parse(ModelSettings, settings, "model").model_dump(mode="json")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"score": "cosine"}, "it supports model.score = scaled-dot or dot, not 'cosine'"),
        ({"normaliser": "entmax"}, "it supports model.normaliser = softmax, not 'entmax'"),
        ({"position": "mine"}, "it does not know model.position = 'mine'"),
        (
            {"position": {"kind": "rotary", "twist": 1}},
            "it does not know the option 'twist' of model.position = 'rotary'",
        ),
        ({"embedding_norm": 1}, "it does not know model.embedding_norm = 1"),
        ({"biases": None}, "it does not know model.biases = None"),
        ({"norm_eps": 0}, "it does not know model.norm_eps = 0"),
        ({"embedding_scale": "1"}, "it does not know model.embedding_scale = '1'"),
        ({"dim": 0}, "it does not know model.dim = 0"),
        ({"heads": 5}, "model.width = 16 cannot be split into model.heads = 5"),
        (
            {"attention_backend": "flex"},
            "model.attention_backend = 'flex' asks for another backend",
        ),
    ],
    ids=str,
)
def test_unsupported_parts_are_refused_by_name(settings: dict[str, Any], reason: str):
    wanted = {**full(TINY), **settings}
    assert cannot(wanted) == reason
    with pytest.raises(NativeError, match="cannot run this model"):
        NativeModel(wanted, SIZES, {})


def test_supported_families_are_accepted():
    assert cannot(full(TINY)) is None
    assert cannot(full(TINY_RECURRENT)) is None
    assert cannot({"kind": "convolutional"}) == (
        "it runs transformer and recurrent models, not model.kind = 'convolutional'"
    )


def test_wrong_tensors_are_named():
    home = Path(MODELS, "spelling")
    config = json.loads((home / "config.json").read_text())["model"]
    tensors = read_tensors(home / "weights.safetensors")
    missing = {name: array for name, array in tensors.items() if name != "decoder_norm.bias"}
    with pytest.raises(NativeError, match=r"tensor 'decoder_norm.bias' is missing"):
        NativeModel(config, (30, 42), missing)
    with pytest.raises(NativeError, match=r"tensor 'extra' belongs to another model"):
        NativeModel(config, (30, 42), {**tensors, "extra": np.zeros(3)})
    with pytest.raises(NativeError, match=r"'source.table' has the wrong shape; expected 31 x 128"):
        NativeModel(config, (31, 42), tensors)


def test_bad_requests_raise():
    _, native = random_pair({**TINY, "position": {"kind": "learned", "max_length": 8}})
    with pytest.raises(NativeError, match="token 11 is not in the source vocabulary"):
        native.search([[11]], [5])
    with pytest.raises(NativeError, match="token 77 is not in the target vocabulary"):
        native.search([[4]], [5], NativeOptions(ban=[[77]]))
    with pytest.raises(NativeError, match="position 8 is beyond the 8 learned positions"):
        native.search([[4] * 8], [5])
    with pytest.raises(NativeError, match="n_best is larger than beam"):
        native.search([[4]], [5], NativeOptions(beam=2, n_best=3))


@pytest.mark.parametrize("int8", [False, True])
def test_weights_that_are_not_finite_raise(int8: bool):
    model, _ = random_pair(TINY)
    weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    del weights["output.table"]
    weights["encoder.0.feed_forward.inner.weight"] = np.full((48, 16), np.nan, np.float32)
    with pytest.raises(NativeError, match="not finite"):
        NativeModel(full(TINY), SIZES, weights, int8=int8).search([[4]], [5])


def test_stored_types_become_float32(tmp_path: Path):
    value = np.array([[1.5, -2.0, 3.25]])
    for dtype in (np.float16, np.float32, np.float64):
        save_file({"x": value.astype(dtype)}, tmp_path / "file")
        assert read_tensors(tmp_path / "file")["x"].tolist() == value.tolist()
    from safetensors.torch import save_file as save_torch

    save_torch({"x": torch.tensor(value, dtype=torch.bfloat16)}, tmp_path / "file")
    found = read_tensors(tmp_path / "file")["x"]
    assert found.tolist() == value.tolist()
    assert found.dtype == np.float32


def test_damaged_files_raise_or_load_the_same_shapes(tmp_path: Path):
    save_file({"a": np.ones((2, 3), np.float32), "b": np.ones(4, np.float32)}, tmp_path / "ok")
    good = (tmp_path / "ok").read_bytes()
    chance, errors = random.Random(5), 0
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        (tmp_path / "bad").write_bytes(data)
        try:
            for array in read_tensors(tmp_path / "bad").values():
                assert array.dtype == np.float32
                array.sum()
        except WeightsError:
            errors += 1
    assert errors > 500


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "limit"), [(32, 128), (8, 10), (16, 100), (64, 77)])
def test_t5_buckets_are_those_of_torch(causal: bool, buckets: int, limit: int):
    ahead = torch.arange(-limit, limit + 1)
    expected = T5(2, buckets=buckets, max_distance=limit, causal=causal).bucket(ahead)
    assert t5_buckets(ahead.numpy(), buckets, limit, causal=causal).tolist() == expected.tolist()


def test_torch_is_not_imported():
    script = f"""
import sys, json
sys.modules["torch"] = None  # importing it raises
from regard.native import NativeModel, read_tensors
home = {str(Path(MODELS, "spelling"))!r}
config = json.load(open(home + "/config.json"))["model"]
model = NativeModel(config, (30, 42), read_tensors(home + "/weights.safetensors"))
print(len(model.search([[5, 6, 7]], [20])[0][0].ids))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_learned_positions_default_to_those_of_torch():
    assert Learned(2).max_length == LEARNED_POSITIONS


@pytest.mark.parametrize("limit", [0, 1, 4])
def test_t5_distances_within_exact_buckets_are_refused(limit: int):
    position = {"kind": "t5", "buckets": 16, "max_distance": 128}
    model, _ = random_pair({**TINY, "position": position})
    weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    wanted = {**full(TINY), "position": {**position, "max_distance": limit}}
    reason = f"16 buckets for distances up to {limit}|not know max_distance = {limit} of"
    with pytest.raises(NativeError, match=reason):
        NativeModel(wanted, SIZES, weights)


def test_a_missing_or_outdated_library_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native_library, "LIBRARY", tmp_path / "engine.so")
    assert "it was not compiled" in (unavailable() or "")
    monkeypatch.setattr(native_library, "find_compiler", lambda: None)
    assert "no C++ compiler was found" in (unavailable() or "")
    (tmp_path / "engine.so").write_bytes(b"not a library")
    assert "older than its sources" in (unavailable() or "")
    with pytest.raises(NativeError, match=r"python -m regard\.native"):
        native_library.load_library()
