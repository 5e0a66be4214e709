"""Transformers on the native engine against torch: every setting, greedy and beam search."""

import itertools
from typing import Any

import pytest

from regard.native import NativeOptions
from regard.search import Beam, Greedy, LengthPenalty
from tests.native.native_models import TINY, assert_same_results, random_pair

POSITIONS: list[Any] = [
    "none",
    "sinusoidal",
    {"kind": "sinusoidal", "order": "halves", "base": 100.0},
    {"kind": "learned", "max_length": 40},
    "rotary",
    {"kind": "rotary", "pairs": "neighbours", "base": 50.0},
    {"kind": "rotary", "fraction": 0.5},
    {"kind": "rotary", "scaling": "linear", "factor": 2.0},
    {"kind": "rotary", "scaling": "ntk", "factor": 2.0},
    "alibi",
    {"kind": "distance", "max_distance": 3},
    {"kind": "t5", "buckets": 8, "max_distance": 10},
    "t5",
    {"kind": "shaw", "max_distance": 4},
]
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu")
BLOCKS = list(itertools.product(("layer", "rms"), ("pre", "post"), ACTIVATIONS))
IMPORTED: dict[str, dict[str, Any]] = {
    "bart": {
        "position": {"kind": "learned", "max_length": 40},
        "norm_order": "post",
        "activation": "gelu",
        "embedding_norm": True,
        "embedding_scale": 1.0,
        "output_bias": True,
    },
    "t5-1.1": {
        "position": {"kind": "t5", "buckets": 8, "max_distance": 12},
        "norm": "rms",
        "norm_eps": 1e-3,
        "activation": "geglu",
        "biases": False,
        "dim": 5,
        "embedding_scale": 1.0,
        "tie_embeddings": "inputs",
    },
}
SIZES: list[dict[str, Any]] = [
    {"kv_heads": 1},
    {"heads": 4, "kv_heads": 2, "width": 32},
    {"window": 3},
    {"window": 2, "position": "alibi"},
    {"width": 15, "heads": 3, "ffn_width": 7, "position": "sinusoidal"},
    {"width": 6, "heads": 3, "ffn_width": 33},
    {"tie_embeddings": "none"},
    {"encoder_layers": 1, "decoder_layers": 3},
    {"score": "dot"},
    {"heads": 12, "width": 48, "position": "alibi"},
    {"dim": 6},
    {"dim": 3, "heads": 5, "kv_heads": 1, "position": "shaw"},
    {"dim": 20, "position": "distance"},
    {"biases": False},
    {"biases": False, "norm_order": "post"},
    {"output_bias": True},
    {"output_bias": True, "tie_embeddings": "none"},
    {"embedding_norm": True},
    {"embedding_norm": True, "norm": "rms", "norm_order": "post", "position": "sinusoidal"},
    {"embedding_scale": 0.25},
    {"norm_eps": 0.5},
    {"norm_eps": 0.01, "norm": "rms"},
]


def assert_same_searches(settings: dict[str, Any], **more: Any) -> None:
    model, native = random_pair({**TINY, **settings}, **more)
    assert_same_results(model, native, Greedy(), NativeOptions())
    penalty = LengthPenalty(1.0)
    options = NativeOptions(beam=4, n_best=4, length_penalty=1.0)
    assert_same_results(model, native, Beam(4, 4, penalty), options)


@pytest.mark.parametrize("position", POSITIONS, ids=str)
def test_positions(position: Any):
    assert_same_searches({"position": position})


@pytest.mark.parametrize(("norm", "order", "activation"), BLOCKS)
def test_norms_and_activations(norm: str, order: str, activation: str):
    assert_same_searches({"norm": norm, "norm_order": order, "activation": activation})


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes_windows_and_ties(sizes: dict[str, Any]):
    assert_same_searches(sizes)


@pytest.mark.parametrize("tie", ["all", "inputs"])
def test_one_table_for_both_vocabularies(tie: str):
    assert_same_searches({"tie_embeddings": tie}, sizes=(13, 13))


@pytest.mark.parametrize("name", IMPORTED)
def test_models_as_others_train_them(name: str):
    assert_same_searches(IMPORTED[name], sizes=(13, 13))


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.0])
@pytest.mark.parametrize("kind", ["power", "gnmt"])
def test_length_penalties(alpha: float, kind: str):
    model, native = random_pair(TINY, seed=3)
    options = NativeOptions(beam=5, n_best=2, length_penalty=alpha, gnmt=kind == "gnmt")
    assert_same_results(model, native, Beam(5, 2, LengthPenalty(alpha, kind)), options)


def test_beams_wider_than_the_vocabulary():
    model, native = random_pair(TINY, seed=4)
    assert_same_results(model, native, Beam(20, 20), NativeOptions(beam=20, n_best=20), most=3)


def test_long_sources_and_outputs_cross_cache_blocks():
    model, native = random_pair({**TINY, "position": "t5"}, seed=5)
    sources = [[3 + i % 7 for i in range(45)], [5, 4] * 40]
    assert_same_results(model, native, Beam(3), NativeOptions(beam=3), sources=sources, most=50)
