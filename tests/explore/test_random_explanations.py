"""Random explained numbers, recomputed from their operands in NumPy (benchmarks/explaining.py)."""

import random
from copy import deepcopy

import pytest

from benchmarks.explaining import check_batch
from regard.trace.operations import (
    activations,
    element_wise,
    gates,
    interventions,
    normaliser_operations,
    positional,
    row_wise,
    score_operations,
)
from regard.trace.operations.operation import Operation, PartOperation


def test_a_thousand_random_numbers_are_explained_right():
    found = check_batch("tensors", 1_000)
    assert found.wrong == []
    assert found.numbers >= 1_000
    assert found.operands > 5_000
    assert {"cosine", "principal component", "logit lens", "rank"} <= set(found.derived)
    assert {"transformer", "bahdanau", "luong"} <= set(found.variety)
    assert len(found.operations) > 30


def test_every_operation_has_a_formula_in_numpy():
    from explaining_gates import FORMULAS  # on the path of benchmarks.explaining

    homes = (activations, element_wise, gates, interventions, normaliser_operations, positional)
    kinds = set()
    for home in (*homes, row_wise, score_operations):
        for one in vars(home).values():
            if isinstance(one, type) and issubclass(one, Operation):
                kind = vars(one).get("kind") or one.__dict__.get("kind", None)
                kinds |= {kind} if isinstance(kind, str) else set()
    assert kinds
    assert kinds - set(FORMULAS) == set()
    assert not isinstance(PartOperation.kind, str)  # parts of users compute their own numbers


@pytest.mark.parametrize("part", ["result", "value", "operand", "line", "running", "step"])
def test_a_wrong_number_is_found(part):
    from explaining_check import wrong_numbers, wrong_operands
    from explaining_subjects import subject

    one = subject(random.Random("wrong"))
    name = next(each for each in one.trace.names if each.endswith(".ffn.hidden"))
    right = one.trace.explain(name, (0, 1)).as_dict()
    assert [*wrong_operands(right, one.lookup), *wrong_numbers(right)] == []
    explained = deepcopy(right)
    row = explained["rows"][1]
    if part == "operand":
        row["operands"][0]["value"] += 0.01
    elif part == "line":
        row["numbers"][0] += 0.01
    elif part == "running":
        row["running"] += 0.01
    elif part == "step":
        explained["steps"][0]["value"] += 0.01
    else:
        explained[part] += 0.01
    assert [*wrong_operands(explained, one.lookup), *wrong_numbers(explained)]
