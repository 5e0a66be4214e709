"""int8 tensors on the native engine: the same integers as if it quantised the weights itself."""

from typing import Any

import numpy as np
import pytest

from regard.bundle.model_files import quantizable, unique_parameters
from regard.int8 import SCALE_SUFFIX, dequantize_rows, quantize_tensors
from regard.models import Model
from regard.native import NativeModel, NativeOptions
from regard.native.library import NativeError
from regard.search import Beam
from tests.native.native_models import (
    SIZES,
    TINY,
    TINY_RECURRENT,
    assert_same_results,
    limits_of,
    random_pair,
    random_sources,
)

MODELS = [
    {**TINY, "position": "t5"},
    {**TINY, "position": "shaw", "kv_heads": 1, "norm": "rms", "norm_order": "post"},
    {**TINY, "position": "learned", "tie_embeddings": "none", "activation": "gelu"},
    {**TINY, "position": "none", "activation": "geglu", "biases": False, "dim": 5, "norm": "rms"},
    {**TINY, "position": "sinusoidal", "embedding_norm": True, "output_bias": True}
    | {"activation": "silu", "embedding_scale": 1.0, "norm_eps": 0.1, "norm_order": "post"},
    {**TINY_RECURRENT, "score": "general", "attention": "luong", "cell": "lstm"},
    {**TINY_RECURRENT, "score": "additive"},
]


def arrays(model: Model) -> dict[str, np.ndarray]:
    return {name: one.detach().numpy().copy() for name, one in unique_parameters(model).items()}


def native(model: Model, tensors: dict[str, np.ndarray], **options: Any) -> NativeModel:
    settings: Any = model.settings
    return NativeModel(settings.model_dump(mode="json"), SIZES, tensors, **options)


def dequantised(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: dequantize_rows(array, tensors[name + SCALE_SUFFIX])
        if array.dtype == np.int8
        else array
        for name, array in tensors.items()
        if not name.endswith(SCALE_SUFFIX)
    }


@pytest.mark.parametrize("settings", MODELS, ids=lambda one: one.get("position", one.get("score")))
def test_stored_integers_give_the_engines_own_results(settings: dict[str, Any]):
    model, _ = random_pair(settings)
    stored = quantize_tensors(arrays(model), quantizable(model))
    tables = {name for name in stored if name.endswith(".table") and stored[name].dtype == np.int8}
    assert tables >= {"source.table"}
    # The engine quantises linear layers, but not the embeddings that it looks up.
    mixed = {**arrays(model), **{name: dequantised(stored)[name] for name in tables}}
    sources = random_sources(20)
    limits, options = limits_of(sources), NativeOptions(beam=3, n_best=2)
    ours = native(model, stored, int8=True).search(sources, limits, options)
    theirs = native(model, mixed, int8=True).search(sources, limits, options)
    assert [[one.ids for one in some] for some in ours] == [
        [one.ids for one in some] for some in theirs
    ]
    for one, other in zip(ours, theirs, strict=True):  # scales of tables may differ by one bit
        np.testing.assert_allclose(one[0].logps, other[0].logps, atol=1e-5)


@pytest.mark.parametrize("settings", MODELS, ids=lambda one: one.get("position", one.get("score")))
def test_float32_products_of_int8_weights_are_torchs(settings: dict[str, Any]):
    model, _ = random_pair(settings)
    stored = quantize_tensors(arrays(model), quantizable(model))
    for name, array in dequantised(stored).items():
        unique_parameters(model)[name].data.copy_(unique_parameters(model)[name].new_tensor(array))
    assert_same_results(model, native(model, stored), Beam(4), NativeOptions(beam=4))


def test_invalid_int8_tensors_are_refused():
    model, _ = random_pair(TINY)
    stored = quantize_tensors(arrays(model), quantizable(model))
    name = "encoder.0.feed_forward.inner.weight"
    broken: list[tuple[dict[str, np.ndarray | None], str]] = [
        ({name + SCALE_SUFFIX: None}, "needs one scale per row"),
        ({name + SCALE_SUFFIX: stored[name + SCALE_SUFFIX][:-1]}, "needs one scale per row"),
        ({name + SCALE_SUFFIX: stored[name + SCALE_SUFFIX] * np.nan}, "not finite"),
        ({name: np.full_like(stored[name], -128)}, "between -127 and 127"),
        ({name: stored[name][:-1], name + SCALE_SUFFIX: stored[name + SCALE_SUFFIX][:-1]}, "shape"),
    ]
    for changes, message in broken:
        tensors = {**stored, **changes}
        with pytest.raises(NativeError, match=message):
            native(model, {n: one for n, one in tensors.items() if one is not None}, int8=True)
    norms = {"encoder_norm.weight": np.ones((TINY["width"], 1), np.int8)}
    norms["encoder_norm.weight" + SCALE_SUFFIX] = np.ones(TINY["width"], np.float32)
    with pytest.raises(NativeError, match=r"wrong shape"):
        native(model, {**stored, **norms}, int8=True)
