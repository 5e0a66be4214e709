"""The arithmetic of a saved page: its program, its weights and their limit."""

import base64
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load

import regard.trace.array_trace
from regard.errors import RegardError
from regard.explore.offline_arithmetic import chosen_numbers, compressed, named_rows
from regard.explore.offline_html import show
from regard.explore.offline_program import constants, explained_as, program_steps
from regard.trace import record
from regard.trace.operations.operation import Operation
from tests.trace.random_models import random_model
from tests.trace.test_parts import use_own_parts

SCRIPTS = Path(__file__).parents[2] / "explorer/src/arithmetic"
SOURCE, TARGET = "zebra", "AH B N"


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*(subclasses(one) for one in kind.__subclasses__()))


def test_the_page_knows_every_explanation():
    assert regard.trace.array_trace  # defines an operation
    kinds = {one for one in subclasses(Operation) if one.__module__.startswith("regard.")}
    defined = {one.__name__ for one in kinds if "explain" in vars(one)} - {"Operation"}
    found = set()
    for file in SCRIPTS.glob("*.ts"):
        found |= set(re.findall(r"^  ([A-Z]\w+)(?:\(|: )", file.read_text(), re.M))
    assert found == defined


def test_a_foreign_operation_has_the_name_of_its_module():
    class Addition(Operation):
        def explain(self, store, index):
            raise NotImplementedError

    assert explained_as(Addition(())) == f"{__name__}.Addition"


def test_masks_are_bits_and_heads_share_them():
    trace = record(random_model("rotary"), SOURCE, TARGET)
    allowed = constants(trace.operation("dec.0.self.masked"), trace)["allowed"]
    heads, queries, keys = allowed["shape"]
    bits = np.unpackbits(np.frombuffer(base64.b64decode(allowed["bits"]), np.uint8))
    found = bits[: queries * keys].reshape(queries, keys).tolist()
    assert heads == 1
    assert found == np.tril(np.ones((queries, keys))).tolist()


def test_parts_of_users_have_their_results_in_float64():
    pipeline = random_model("sinusoidal")
    use_own_parts(pipeline)
    trace = record(pipeline, SOURCE, TARGET)
    steps = program_steps(trace)
    names = [name for name, step in steps.items() if "exact" in step["constants"]]
    assert {steps[name]["constants"]["part"] for name in names} == {
        *("Manhattan", "Halved", "Quadratic", "Flipped", "Ramp")
    }
    for name in names:
        array = steps[name]["constants"]["exact"]
        exact = np.frombuffer(base64.b64decode(array["numbers"])).reshape(array["shape"])
        index = tuple(size // 2 for size in exact.shape)
        assert exact.shape == tuple(trace[name].shape)
        assert exact[index] == pytest.approx(trace.explain(name, index).result, rel=1e-12)


def test_compressed_numbers_are_read_back():
    numbers = {"a": torch.randn(3, 5), "b.c": torch.arange(7.0)}
    planes = zlib.decompress(base64.b64decode(compressed(numbers)))
    found = load(np.frombuffer(planes, np.uint8).reshape(4, -1).T.tobytes())
    assert found.keys() == numbers.keys()
    for name, tensor in numbers.items():
        np.testing.assert_array_equal(found[name], tensor.numpy())


def test_all_weights_are_chosen_within_the_limit():
    trace = record(random_model("rotary"), SOURCE, TARGET)
    weights = trace.numbers.weights
    numbers, rows, missing = chosen_numbers(trace, sum(one.nbytes for one in weights.values()))
    assert (set(numbers), rows, missing) == (set(weights), {}, {})


def test_beyond_the_limit_the_smallest_weights_come_first():
    trace = record(random_model("rotary"), SOURCE, TARGET)
    limit = 3_000
    numbers, rows, missing = chosen_numbers(trace, limit)
    weights = trace.numbers.weights
    assert set(numbers) | set(missing) == set(weights)
    assert sum(one.nbytes for one in numbers.values()) <= limit
    whole = [weights[name].nbytes for name in numbers if name not in rows]
    assert max(whole) <= min(missing.values())
    assert rows == named_rows(trace)
    table = trace.operation("src.embed").weights[0]
    assert rows[table] == sorted({piece.id for piece in trace.source})
    assert torch.equal(numbers[table], weights[table][rows[table]])


def test_invalid_limits_are_refused():
    trace = record(random_model("rotary"), SOURCE, TARGET)
    for limit in (-1, float("nan"), float("inf")):
        with pytest.raises(RegardError, match="weights_mb must be a finite number of at least 0"):
            show(trace, weights_mb=limit)
