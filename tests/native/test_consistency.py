"""Outputs depend on the source alone: not on batch, order, threads or instruction set."""

import json
import random
from pathlib import Path

import pytest

from regard.native import NativeModel, NativeOptions, check_kernels, kernel_names, read_tensors
from regard.pretrained import MODELS
from regard.search import Beam
from tests.native.native_models import (
    TINY,
    assert_same_results,
    limits_of,
    random_pair,
    random_sources,
)

SEARCHES = {"greedy": NativeOptions(), "beam": NativeOptions(beam=4, n_best=2, length_penalty=1.0)}


def included(name: str, **options: object) -> NativeModel:
    """An included model on the native engine."""
    home = Path(MODELS, name)
    config = json.loads((home / "config.json").read_text())
    sizes = config["vocabulary"]["source"], config["vocabulary"]["target"]
    return NativeModel(
        config["model"], sizes, read_tensors(home / "weights.safetensors"), **options
    )


def test_kernels_agree_with_simple_loops():
    assert check_kernels() == []


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", ["spelling", "spelling-recurrent"])
def test_batch_order_and_threads_change_nothing(name: str, search: str, int8: bool):
    native, options = included(name, int8=int8), SEARCHES[search]
    sources = random_sources(150, 14, 30)
    limits = limits_of(sources, 40)
    alone = [
        native.search([ids], [limit], options)[0]
        for ids, limit in zip(sources, limits, strict=True)
    ]
    for size in (7, 64, 150):
        for threads in (1, 2, 3):
            batched = []
            for i in range(0, len(sources), size):
                part = sources[i : i + size], limits[i : i + size]
                batched += native.search(*part, options, threads=threads)
            assert batched == alone
    order = list(range(len(sources)))
    random.Random(1).shuffle(order)
    shuffled = native.search([sources[i] for i in order], [limits[i] for i in order], options)
    assert shuffled == [alone[i] for i in order]


@pytest.mark.parametrize("name", ["spelling", "spelling-recurrent"])
def test_int8_outputs_are_almost_those_of_float32(name: str):
    exact, quantised = included(name), included(name, int8=True)
    sources = random_sources(100, 10, 30)
    limits = limits_of(sources, 40)
    pairs = zip(exact.search(sources, limits), quantised.search(sources, limits), strict=True)
    same = sum(ours[0].ids == theirs[0].ids for ours, theirs in pairs)
    assert same >= 85
    assert exact.search(sources, limits) != quantised.search(sources, limits)


def test_every_instruction_set_gives_torch_results():
    for name in kernel_names():
        model, native = random_pair({**TINY, "position": "shaw"}, kernels=name)
        assert_same_results(model, native, Beam(4), NativeOptions(beam=4))
