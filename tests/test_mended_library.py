"""Faults that were found by using the package as a library, each of which stays mended."""

import subprocess
import sys

import pytest
import torch

import regard
from regard import Ragged
from regard.errors import ShapeError


@pytest.fixture
def t() -> regard.Pipeline:
    return regard.load("spelling", device="cpu")


@pytest.mark.parametrize("name", ["spelling", "spelling-recurrent"])
def test_each_source_needs_its_prefix(name):
    model = regard.load(name, device="cpu").model
    one, two = (
        Ragged.of([torch.tensor([5, 3])]),
        Ragged.of([torch.tensor([1]), torch.tensor([1, 5])]),
    )
    for source, prefix in ((two, one), (one, two)):
        with pytest.raises(ShapeError, match="each source needs its prefix"):
            model(source, prefix)


def test_wrong_kinds_of_argument_are_said_in_one_line():
    """In a process of its own, without the checks that tests run under."""
    program = """
import regard, torch
t = regard.load("spelling")
for wrong in (
    lambda: t.search(prefix=["AH"]),
    lambda: regard.load("spelling", precision=torch.bfloat16),
    lambda: regard.attend(*torch.ones(3, 1, 1, 2, 4), normaliser=None),
):
    try:
        wrong()
    except regard.errors.RegardError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr[-400:]
    prefix, precision, normaliser = done.stdout.splitlines()
    assert prefix == "text must be a str; got ['AH']"
    assert precision.startswith("unknown precision torch.bfloat16")
    assert normaliser.startswith("unknown normaliser None")


def test_trace_contains_its_names(t):
    trace = regard.record(t, "cat")
    assert "out.logits" in trace
    assert "nothing" not in trace
    assert list(trace) == trace.names


WRONG = """
import numpy, torch, regard
from regard.attention import Attention
x = torch.randn(1, 2, 3, 4)
asked = [
    lambda: regard.attend(x.numpy(), x, x), lambda: regard.attend(x, x, x.tolist()),
    lambda: regard.attend(x, x, x, bias="alibi"), lambda: Attention("dot"),
    lambda: regard.load("spelling").search(beam="4"),
]
for ask in asked:
    try:
        ask()
    except regard.errors.RegardError as error:
        print(error)
"""


def test_arguments_of_a_wrong_kind_are_named_in_a_line():
    """In a process of its own: here, types are checked before the package sees them."""
    run = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        "sequences must be tensors or Ragged batches; got a ndarray; convert it with "
        "torch.as_tensor",
        "sequences must be tensors or Ragged batches; got a list; convert it with torch.as_tensor",
        "bias must be a BiasPosition instance such as Alibi(heads); got 'alibi'",
        "score must be a Score instance such as ScaledDot(heads, dim); got 'dot'",
        "beam must be an integer of at least 1; got '4'",
    ]
