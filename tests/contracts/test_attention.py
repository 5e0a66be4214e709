"""What every attention must do, whatever its parts, its mask and the machine that runs it."""

import itertools

import pytest
import torch

from regard.attention import BACKENDS, Attention, causal, everything, prefix
from regard.errors import BackendError
from regard.ragged import Ragged
from tests.contracts.cases import (
    DIM,
    GROUPS,
    HEADS,
    MASKS,
    OUT,
    PARTS,
    QUERIES,
    assert_as_good_as,
    batch,
    double,
)

CAN = [
    (part, backend)
    for part, backend in itertools.product(PARTS, BACKENDS)
    if BACKENDS[backend].cannot(PARTS[part]("auto"), None) is None
    and backend != "triton"  # tests/gpu holds that one
]
CANNOT = [pair for pair in itertools.product(PARTS, BACKENDS) if pair not in CAN]
TRAINS = [
    (part, backend) for part, backend in CAN if backend != "flex"
]  # on a CPU flex computes no gradients

every = pytest.mark.parametrize(("part", "backend"), CAN)
trains = pytest.mark.parametrize(("part", "backend"), TRAINS)
masks = pytest.mark.parametrize("mask", MASKS)


def leaves(*sequences: Ragged) -> list[torch.Tensor]:
    return [s.values.requires_grad_() for s in sequences]


GROUPED = [
    *((GROUPS, mask) for mask in MASKS),
    *itertools.product((HEADS, 1), ("everything", "and")),
]


@every
@torch.no_grad()
@pytest.mark.parametrize(("groups", "mask"), GROUPED)
@pytest.mark.parametrize("same", [False, True], ids=["cross", "self"])
def test_matches_the_reference(part: str, backend: str, mask: str, groups: int, same: bool):
    attention = PARTS[part](backend)
    q, k, v = batch(groups, same=same)
    fused = attention(q, k, v, mask=MASKS[mask])
    attention.backend = "reference"
    eager = attention(q, k, v, mask=MASKS[mask])
    exact = double(attention)(
        q.like(q.values.double()), *(x.like(x.values.double()) for x in (k, v)), mask=MASKS[mask]
    )
    assert fused.values.shape == (sum(QUERIES), HEADS, OUT)
    assert fused.layout is q.layout
    assert_as_good_as(fused.values, eager.values, exact.values)


@trains
@masks
def test_gradients_match_the_reference(part: str, backend: str, mask: str):
    def gradients(attention: Attention, dtype: torch.dtype) -> list[torch.Tensor]:
        torch.manual_seed(1)
        q, k, v = (x.like(x.values.to(dtype)) for x in batch())
        inputs = [*leaves(q, k, v), *attention.parameters()]
        out = attention(q, k, v, mask=MASKS[mask]).values
        return list(
            torch.autograd.grad(
                out.square().sum(), inputs, allow_unused=True, materialize_grads=True
            )
        )

    attention = PARTS[part](backend)
    fused, exact = gradients(attention, torch.float32), gradients(double(attention), torch.float64)
    attention.backend = "reference"
    # Fused kernels recompute weights in the backward pass and subtract terms as large as the top
    # gradient, which adds rounding errors where eager, with stored weights, may be exact.
    size = 16 * max(truth.abs().max().item() for truth in exact if truth.numel())
    for ours, theirs, truth in zip(fused, gradients(attention, torch.float32), exact, strict=True):
        assert_as_good_as(ours, theirs, truth, size)


@trains
@pytest.mark.parametrize("mask", ["everything", "and"])
def test_gradcheck(part: str, backend: str, mask: str):
    attention = PARTS[part](backend).double()
    q, k, v = batch(dtype=torch.float64)
    inputs = [*leaves(q, k, v), *attention.parameters()]

    def run(
        queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *_: torch.Tensor
    ) -> torch.Tensor:
        return attention(q.like(queries), k.like(keys), v.like(values), mask=MASKS[mask]).values

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@trains
def test_masked_key_has_no_influence_and_no_gradient(part: str, backend: str):
    attention = PARTS[part](backend)
    q, k, v = batch(same=True)
    leaves(q, k, v)
    out = attention(q, k, v, mask=causal)
    first = out.unbind()[2][0]  # the first query of the third sequence may see its first key alone
    seen = torch.autograd.grad(
        first.sum(), [k.values, v.values], allow_unused=True, materialize_grads=True
    )
    start = int(k.offsets[2])
    for gradient in seen:
        gradient[start] = 0
        assert torch.equal(gradient, torch.zeros_like(gradient))
    changed_k, changed_v = k.values.detach().clone(), v.values.detach().clone()
    changed_k[start + 1 :] += 3
    changed_v[start + 1 :] *= -100
    again = attention(q, k.like(changed_k), v.like(changed_v), mask=causal).unbind()[2][0]
    assert torch.equal(again, first)


@every
@torch.no_grad()
def test_fully_masked_queries_return_zeros(part: str, backend: str):
    attention = PARTS[part](backend)
    q, k, v = batch()
    assert attention(q, k, v, mask=prefix(0)).values.eq(0).all()
    out = attention(q, k, v)  # the third sequence has five queries and no key at all
    assert out.unbind()[2].eq(0).all()
    assert out.values.isfinite().all()


@trains
def test_fully_masked_queries_have_finite_gradients(part: str, backend: str):
    attention = PARTS[part](backend)
    q, k, v = batch()
    inputs = [*leaves(q, k, v), *attention.parameters()]
    for mask in (prefix(0), everything):
        out = attention(q, k, v, mask=mask).values
        for gradient in torch.autograd.grad(
            out.sum(), inputs, allow_unused=True, materialize_grads=True
        ):
            assert gradient.isfinite().all()


@every
@torch.no_grad()
@pytest.mark.parametrize(
    "mask", [name for name in MASKS if name != "prefix-each"]
)  # it numbers its sequences
def test_result_does_not_depend_on_the_batch(part: str, backend: str, mask: str):
    attention = PARTS[part](backend)
    q, k, v = batch()
    together = attention(q, k, v, mask=MASKS[mask])
    for i, row in enumerate(together):
        alone = attention(*(Ragged.of([x.unbind()[i]]) for x in (q, k, v)), mask=MASKS[mask])
        torch.testing.assert_close(row, alone.values, rtol=1e-5, atol=1e-6)


@every
@torch.no_grad()
@pytest.mark.parametrize("groups", [HEADS, GROUPS])
def test_dense_equals_ragged(part: str, backend: str, groups: int):
    attention = PARTS[part](backend)
    q, k = torch.randn(2, HEADS, 5, DIM), torch.randn(2, groups, 7, DIM)
    v = torch.randn(2, groups, 7, OUT)
    packed = (Ragged.of([row.transpose(0, 1) for row in x]) for x in (q, k, v))
    expected = torch.stack([row.transpose(0, 1) for row in attention(*packed, mask=causal)])
    torch.testing.assert_close(attention(q, k, v, mask=causal), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "part", [part for part in PARTS if part != "normaliser:none"]
)  # it promises neither
@torch.no_grad()
def test_weights_sum_to_one_and_are_not_negative(part: str):
    attention = PARTS[part]("auto")
    q, k, v = batch()
    seen = attention.intermediates(q, k, v, mask=causal)
    totals = seen.weights.sum(-1)
    assert seen.weights.ge(0).all()
    assert torch.all(torch.isclose(totals, torch.ones(())) | totals.eq(0))
    assert seen.weights.masked_select(~seen.allowed.expand_as(seen.weights)).eq(0).all()


@pytest.mark.parametrize(("part", "backend"), CANNOT)
def test_explicit_backend_names_its_reason(part: str, backend: str):
    attention = PARTS[part](backend)
    with pytest.raises(
        BackendError,
        match=rf"backend '{backend}' cannot run this attention: it .* only, .*\. Use backend=",
    ):
        attention(*batch())
    attention.backend = "auto"
    assert attention(*batch()).values.isfinite().all()


def test_dropout_acts_on_weights_in_training_only():
    attention = PARTS["score:scaled-dot"]("reference")
    attention.dropout.p = 0.5
    q, k, v = batch()
    still = attention(q, k, v).values
    assert torch.equal(still, attention(q, k, v).values)
    attention.train()
    assert not torch.equal(still, attention(q, k, v).values)
    many = torch.stack([attention(q, k, v).values for _ in range(400)]).mean(0)
    torch.testing.assert_close(
        many, still, atol=0.4, rtol=0
    )  # kept weights are doubled, so the mean stays
    attention.backend = "flex"
    with pytest.raises(
        BackendError, match=r"it supports attention without dropout only, and dropout is 0\.5"
    ):
        attention(q, k, v)


NOT_FINITE = (float("nan"), float("inf"), float("-inf"))


@every
@torch.no_grad()
@pytest.mark.parametrize("number", NOT_FINITE, ids=str)
@pytest.mark.parametrize("mask", ["causal", "window", "prefix", "or"])
def test_masked_value_that_is_not_finite_is_ignored(
    part: str, backend: str, mask: str, number: float
):
    """Each row equals that of an attention whose masked values are zeros: 0 · NaN is NaN."""
    attention = PARTS[part](backend)
    q, k = torch.randn(2, HEADS, 5, DIM), torch.randn(2, GROUPS, 5, DIM)
    v = torch.randn(2, GROUPS, 5, OUT)
    spoilt, clean = v.clone(), v.clone()
    spoilt[0, :, 3], clean[0, :, 3] = number, 0  # the other sequence stays as it is
    expected = attention(q, k, clean, mask=MASKS[mask])
    found = attention(q, k, spoilt, mask=MASKS[mask])
    visible = attention.intermediates(q, k, v, mask=MASKS[mask]).allowed.expand(2, HEADS, 5, 5)
    sees = visible[..., 3] & torch.tensor([True, False])[:, None, None]
    torch.testing.assert_close(found[~sees], expected[~sees], rtol=1e-5, atol=1e-6)
    assert not found[sees].isfinite().any()
    assert sees.any() or mask == "prefix"


@trains
def test_masked_nan_reaches_no_gradient(part: str, backend: str):
    attention = PARTS[part](backend)
    q, k, v = batch(same=True)
    start = int(k.offsets[2])
    spoilt = v.values.clone()
    spoilt[start + 1 :] = float("nan")  # hidden from the first query of the third sequence
    inputs = leaves(q, k, spoilt_values := v.like(spoilt))
    out = attention(q, k, spoilt_values, mask=causal).unbind()[2][0]
    assert out.isfinite().all()
    for gradient in torch.autograd.grad(
        out.sum(), inputs, allow_unused=True, materialize_grads=True
    ):
        assert gradient[: start + 1].isfinite().all()


def test_intermediates_hide_a_masked_nan():
    attention = PARTS["score:scaled-dot"]("auto")
    q = torch.randn(1, HEADS, 4, DIM)
    v = torch.randn(1, HEADS, 4, OUT)
    v[:, :, 2] = float("nan")
    context = attention.intermediates(q, q, v, mask=causal).context
    assert context[:, :, :2].isfinite().all()
    assert context[:, :, 2:].isnan().all()
