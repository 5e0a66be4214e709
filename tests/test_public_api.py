"""The package's public names, and one-line errors for arguments of a wrong type."""

import subprocess
import sys

import pytest

import regard

MODULES = [
    *("attention", "bundle", "explore", "kernels", "models", "pipeline", "plots", "pooling"),
    *("positions", "search", "text", "trace", "training", "vectors"),
]


def run_python(script: str) -> list[str]:
    """The lines that a script prints in a process of its own."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_modules_are_imported_on_first_access():
    script = f"import regard\nfor name in {MODULES}: print(getattr(regard, name).__name__)"
    assert run_python(script) == [f"regard.{name}" for name in MODULES]


def test_every_public_name_exists():
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    with pytest.raises(AttributeError, match=r"^module 'regard' has no attribute 'lode'$"):
        regard.lode  # noqa: B018


WRONG_TYPES = [
    ("regard.record(p, 5)", "text must be a str; got 5"),
    ("list(p.stream(5))", "text must be a str; got 5"),
    ("p.score(5, 'AH')", "text must be a str; got 5"),
    ("p.score('a', 5)", "text must be a str; got 5"),
    ("p.sample(5)", "text must be a str; got 5"),
    ("p.search(prefix=['AH'])", "text must be a str; got ['AH']"),
    ("regard.record(p, 'a', edits={'kind': 'unmasked'})", "edits must be a list of dictionaries"),
    ("list(p.scores(['ab']))", "expected a pair of texts, source and target; got 'ab'"),
    ("p.search(beam='4')", "beam must be an integer of at least 1; got '4'"),
    ("regard.load('spelling', precision=torch.half)", "unknown precision torch.float16"),
    ("regard.attend(x, x, x, normaliser=None)", "unknown normaliser None"),
    (
        "regard.attend(x.numpy(), x, x)",
        "sequences must be tensors or Ragged batches; got a ndarray; convert it with "
        "torch.as_tensor",
    ),
    (
        "regard.attend(x, x, x.tolist())",
        "sequences must be tensors or Ragged batches; got a list; convert it with torch.as_tensor",
    ),
    (
        "regard.attend(x, x, x, bias='alibi')",
        "bias must be a BiasPosition instance such as Alibi(heads); got 'alibi'",
    ),
    (
        "regard.Attention('dot')",
        "score must be a Score instance such as ScaledDot(heads, dim); got 'dot'",
    ),
    (
        "regard.causal & torch.ones(2) > 0",
        "mask must be a Mask such as causal or window(8), joined by & and |;",
    ),
    (
        "regard.causal | 'all'",
        "mask must be a Mask such as causal or window(8), joined by & and |;",
    ),
    ("regard.Ragged.of([[1, 2], [3]])", "a sequence must be a tensor with time first;"),
    (
        "regard.Ragged(torch.zeros(3), [0, 1, 3])",
        "offsets must be a one-dimensional integer tensor;",
    ),
    (
        "regard.Ragged(torch.zeros(3), torch.tensor([0.0, 3.0]))",
        "offsets must be a one-dimensional integer tensor;",
    ),
    ("regard.search.Sampling(seed=1.5)", "seed must be a whole number below 2¹²⁷;"),
    ("same_seed(3, numpy.int64(3))", "same"),
]
SCRIPT = """
import numpy, torch, regard
p, x = regard.load("spelling"), torch.randn(1, 2, 3, 4)

def same_seed(one, other):
    [a], [b] = p.sample("at", seed=one), p.sample("at", seed=other)
    print("same" if a.ids == b.ids else "different")

for call in {calls}:
    try:
        eval(call)
    except regard.RegardError as error:
        print(error)
"""


def test_arguments_of_a_wrong_type_are_errors_of_one_line():
    """In a process of its own: here, the type checks of tests would raise first."""
    printed = run_python(SCRIPT.format(calls=[call for call, _ in WRONG_TYPES]))
    assert len(printed) == len(WRONG_TYPES)
    for line, (call, message) in zip(printed, WRONG_TYPES, strict=True):
        assert line.startswith(message), call
