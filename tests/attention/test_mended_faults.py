"""Faults that were found and mended: each test says what should be."""

import contextlib

import pytest
import torch

from regard import Cache, MultiHead, attend, debug, prefix
from regard.attention import Attention, causal, everything
from regard.attention.normalisers import Epanechnikov, Positive
from regard.attention.scores import Additive, ScaledDot
from regard.errors import BackendError, RegardError
from regard.positions import T5, Alibi, Distance, Learned, Rotary, Shaw

BATCH, HEADS, QUERIES, KEYS, DIM, OUT = 2, 3, 5, 7, 4, 6


def inputs(dim: int = DIM, keys: int = KEYS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    sizes = ((QUERIES, dim), (keys, dim), (keys, OUT))
    q, k, v = (torch.randn(BATCH, HEADS, *size) for size in sizes)
    return q, k, v


@pytest.mark.parametrize("far", [100.0, 1000.0])
def test_a_gaussian_does_not_depend_on_where_the_origin_is(far: float):
    """As q · k − ‖k‖²/2 it cancels: auto strays 1e−3 at 100, 0.1 at 1000; the reference 1e−7. Shift both by a key."""
    q, k, v = inputs()
    q, k = q + far, k + far
    exact = attend(q.double(), k.double(), v.double(), score="gaussian", backend="reference")
    torch.testing.assert_close(attend(q, k, v, score="gaussian").double(), exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", [lambda: Rotary(6, base=71.0), lambda: Rotary(6, base=73.0, pairs="neighbours")])
def test_a_default_device_spoils_no_table_of_waves(kind):
    """`_table` makes its positions on the default device, and keeps them there for all who come after."""
    vectors, places = torch.randn(QUERIES, 6), torch.arange(QUERIES)
    with torch.device("meta"), contextlib.suppress(RuntimeError):
        kind().rotate(vectors, places)
    assert kind().rotate(vectors, places).isfinite().all()


def test_positive_exp_is_softmax_again_for_large_scores_too():
    scores = torch.tensor([[[[100.0, 100.0]]]])
    assert Positive("exp")(scores, torch.ones_like(scores, dtype=torch.bool)).tolist() == [[[[0.5, 0.5]]]]


@pytest.mark.parametrize(
    "score", [ScaledDot(HEADS, 9), Additive(1, DIM), ScaledDot(5, DIM)], ids=["dim", "one", "heads"]
)
def test_a_score_made_for_other_sizes_is_an_error(score: ScaledDot | Additive):
    with pytest.raises(RegardError):
        attend(*inputs(), score=score)


def test_steps_are_those_before_dropout_in_training_too():
    attention, (q, k, v) = Attention(ScaledDot(HEADS, DIM), dropout=0.5).train(), inputs()
    seen = attention.intermediates(q, k, v)
    torch.testing.assert_close(seen.context, seen.weights @ v)


def test_debug_does_not_change_what_dropout_draws():
    attention, (q, k, v) = Attention(ScaledDot(HEADS, DIM), dropout=0.5, backend="reference").train(), inputs()
    torch.manual_seed(1)
    plain = attention(q, k, v)
    torch.manual_seed(1)
    with debug():
        assert torch.equal(attention(q, k, v), plain)


@pytest.mark.parametrize("normaliser", ["entmax", "sparsemax"])
def test_steps_and_debug_bear_a_batch_without_keys(normaliser: str):
    q, k, v = inputs(keys=0)
    with debug():
        assert attend(q, k, v, normaliser=normaliser).eq(0).all()


def test_a_cache_refuses_gradients_of_values_too():
    with pytest.raises(RegardError):
        Cache().append(torch.randn(2, 3, 1, 4), torch.randn(2, 3, 1, 5, requires_grad=True))


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (2, 3, 2, 5), (2, 1, 4, 5)], ids=["rows", "positions", "groups"])
def test_append_needs_one_value_per_key(shape: tuple[int, ...]):
    with pytest.raises(RegardError):
        Cache().append(torch.randn(2, 3, 4, 5), torch.randn(shape))


def test_a_forbidden_nan_score_weighs_nothing_in_a_kernel():
    scores, allowed = torch.tensor([[[[torch.nan, -0.1]]]]), torch.tensor([[[[False, True]]]])
    assert Epanechnikov()(scores, allowed).tolist() == [[[[0.0, 1.0]]]]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MultiHead(12, 3)(torch.randn(2, 5, 10)),  # torch's "mat1 and mat2 shapes cannot be multiplied"
        lambda: MultiHead(12, 3, context=7)(torch.randn(2, 5, 12), torch.randn(2, 4, 12)),
        lambda: MultiHead(12, 0),  # ZeroDivisionError
        lambda: MultiHead(12, -3),  # accepted
        lambda: MultiHead(12, 3, rotation=Rotary(8))(torch.randn(2, 5, 12)),
        lambda: attend(*inputs(), bias=Shaw(8)),
        lambda: attend(*inputs(), mask=prefix(torch.tensor([1, 2, 3]))),  # three lengths for two sequences: accepted
        lambda: Alibi(0),  # ValueError: math domain error
        lambda: Learned(3, max_length=5)(torch.tensor([-1])),  # the last row, silently
        lambda: Rotary(8, factor=4.0),  # a factor without a scaling is ignored
    ],
    ids=[
        "width",
        "context",
        "no-heads",
        "negative-heads",
        "rotary-dim",
        "shaw-dim",
        "prefix",
        "alibi",
        "learned",
        "factor",
    ],
)
def test_this_is_an_error_of_ours(wrong):
    with pytest.raises(RegardError):
        wrong()


def test_positive_exp_takes_its_largest_score_from_what_is_allowed():
    """A forbidden score counts as 0 when the largest is sought, so that allowed ones far below it vanish."""
    scores, allowed = torch.tensor([[[[-200.0, -200.0, 5.0]]]]), torch.tensor([[[[True, True, False]]]])
    assert Positive("exp")(scores, allowed).tolist() == [[[[0.5, 0.5, 0.0]]]]


def test_a_gaussian_over_a_wide_range_is_as_exact_on_auto_as_by_definition():
    """Wherever the origin is put, keys a thousand bandwidths apart cancel as q · k − ‖k‖²/2: auto strays 6e−3 here,
    the reference 1e−7. Nadaraya–Watson on a line is just this."""
    keys = torch.arange(1001.0)[None, None, :, None]
    queries = torch.tensor([3.3, 500.2, 999.7])[None, None, :, None]
    values = torch.randn(1, 1, 1001, 6)
    exact = attend(queries.double(), keys.double(), values.double(), score="gaussian", backend="reference")
    torch.testing.assert_close(attend(queries, keys, values, score="gaussian").double(), exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("bias", [lambda: Alibi(HEADS), lambda: Distance(HEADS, DIM), lambda: T5(HEADS)])
@pytest.mark.parametrize("mask", [everything, causal], ids=repr)
@pytest.mark.parametrize("backend", ["auto", "sdpa"])
def test_double_inputs_beside_a_float32_bias(bias, mask, backend: str):
    """torch's own kernel takes a float32 map beside float64 queries and computes something else."""
    q, k, v = (x.double() for x in inputs())
    own = bias()
    expected = attend(q, k, v, bias=own, mask=mask, backend="reference")
    torch.testing.assert_close(attend(q, k, v, bias=own, mask=mask, backend=backend), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "bias", [lambda: Alibi(HEADS), lambda: Distance(HEADS, DIM), lambda: T5(HEADS), lambda: Shaw(DIM)]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@torch.no_grad()
def test_the_definition_takes_inputs_of_another_precision_than_its_bias(bias, dtype: torch.dtype):
    own, whole = bias(), inputs()
    made = attend(*(x.to(dtype) for x in whole), bias=own, backend="reference")
    assert made.dtype == dtype
    torch.testing.assert_close(made.float(), attend(*whole, bias=own, backend="reference"), rtol=0, atol=0.05)


def test_flex_on_a_cpu_refuses_gradients_of_keys_too():
    q, k, v = inputs()
    with pytest.raises(BackendError, match="computes no gradients"):
        attend(q, k.requires_grad_(), v, backend="flex")
