"""Faults that were found by using the package as a library, each of which stays mended."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import regard
from regard import Ragged, attend
from regard.attention import Attention, Cache, MultiHead, ScaledDot, Score
from regard.errors import ShapeError


class Adapted(nn.Linear):
    """A layer with something beside it, as adapters are."""

    def __init__(self, of: nn.Linear) -> None:
        super().__init__(of.in_features, of.out_features, of.bias is not None)
        self.load_state_dict(of.state_dict())
        self.down, self.up = nn.Linear(of.in_features, 2, bias=False), nn.Linear(2, of.out_features, bias=False)

    def forward(self, x):
        return super().forward(x) + self.up(self.down(x))


@pytest.fixture
def t() -> regard.Pipeline:
    return regard.load("spelling", device="cpu")


@pytest.mark.parametrize("role", ["queries", "keys", "values", "out"])
def test_an_adapter_on_any_projection_is_heard_and_learns(role):
    torch.manual_seed(0)
    heads, x = MultiHead(16, 4), torch.randn(2, 5, 16)
    before = heads(x)
    adapted = Adapted(getattr(heads, role))
    setattr(heads, role, adapted)
    after = heads(x)
    assert not torch.allclose(before, after, atol=1e-4)
    after.sum().backward()
    assert adapted.down.weight.grad.abs().sum() > 0
    with torch.no_grad():
        adapted.up.weight.zero_()
    torch.testing.assert_close(heads(x), before)


def test_a_hook_on_a_projection_is_called():
    heads, seen = MultiHead(16, 4), []
    heads.keys.register_forward_hook(lambda layer, given, made: seen.append(made.shape))
    heads(torch.randn(1, 3, 16))
    assert seen == [(1, 3, 16)]


def test_a_score_of_ones_own_is_computed_by_its_own_words():
    class Half(ScaledDot):
        def forward(self, queries, keys):
            return super().forward(queries, keys) / 2

    class Apart(Score):
        def forward(self, queries, keys):
            return -(queries[:, :, :, None] - keys[:, :, None]).abs().sum(-1)

    q, k, v = torch.randn(3, 1, 2, 5, 8).unbind()
    for score in (Half(2, 8), Apart(2, 8)):
        assert not score.is_dot
        whole = Attention(score)
        torch.testing.assert_close(whole(q, k, v), whole.intermediates(q, k, v).context)
        torch.testing.assert_close(attend(q, k, v, score=score), score(q, k).softmax(-1) @ v)
    assert ScaledDot(2, 8).is_dot


@pytest.mark.parametrize("name", ["spelling", "spelling-recurrent"])
def test_each_source_needs_its_prefix(name):
    model = regard.load(name, device="cpu").model
    one, two = Ragged.of([torch.tensor([5, 3])]), Ragged.of([torch.tensor([1]), torch.tensor([1, 5])])
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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
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


def test_a_cache_takes_more_of_the_same_kind_alone():
    keys = torch.randn(2, 2, 3, 4)
    cache = Cache().append(keys, keys)
    for other in (keys[:, :1], keys[..., :1], keys.half()):
        with pytest.raises(ShapeError, match="this cache stores"):
            cache.append(other, other)
    assert cache.append(keys, keys).longest == 6


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
        "sequences must be tensors or Ragged batches; got a ndarray; convert it with torch.as_tensor",
        "sequences must be tensors or Ragged batches; got a list; convert it with torch.as_tensor",
        "bias must be a BiasPosition instance such as Alibi(heads); got 'alibi'",
        "score must be a Score instance such as ScaledDot(heads, dim); got 'dot'",
        "beam must be an integer of at least 1; got '4'",
    ]
