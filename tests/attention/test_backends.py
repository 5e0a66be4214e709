"""Backends: dtypes of inputs and biases, gradients on flex, and user-registered backends."""

import pytest
import torch
from torch import Tensor

from regard import attend
from regard.attention import BACKENDS, Attention, ScaledDot, causal, everything
from regard.attention.backends import Backend
from regard.errors import BackendError
from regard.positions import T5, Alibi, Distance, Shaw

HEADS, DIM = 3, 4
BIASES = {
    "alibi": lambda: Alibi(HEADS),
    "distance": lambda: Distance(HEADS, DIM),
    "t5": lambda: T5(HEADS),
    "shaw": lambda: Shaw(DIM),
}


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, HEADS, 5, DIM), torch.randn(2, HEADS, 7, DIM), torch.randn(2, HEADS, 7, 6)


@pytest.mark.parametrize("bias", ["alibi", "distance", "t5"])
@pytest.mark.parametrize("mask", [everything, causal], ids=repr)
@pytest.mark.parametrize("backend", ["auto", "sdpa"])
def test_float64_inputs_with_a_float32_bias(bias: str, mask, backend: str):
    """torch's kernel accepts a float32 map with float64 queries and computes something else."""
    q, k, v = (x.double() for x in inputs())
    part = BIASES[bias]()
    expected = attend(q, k, v, bias=part, mask=mask, backend="reference")
    ours = attend(q, k, v, bias=part, mask=mask, backend=backend)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("bias", ["alibi", "t5"])
def test_float64_bias_with_other_inputs(bias: str, dtype: torch.dtype):
    part, (q, k, v) = BIASES[bias]().double(), (x.to(dtype) for x in inputs())
    backends = ("sdpa", "reference")
    ours, expected = (attend(q, k, v, bias=part, mask=causal, backend=name) for name in backends)
    assert ours.dtype == expected.dtype == dtype
    torch.testing.assert_close(
        ours, expected, atol=2e-3 if dtype == torch.float16 else 1e-6, rtol=0
    )


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@torch.no_grad()
def test_reference_accepts_inputs_of_another_dtype_than_its_bias(bias: str, dtype: torch.dtype):
    part, full = BIASES[bias](), inputs()
    ours = attend(*(x.to(dtype) for x in full), bias=part, backend="reference")
    assert ours.dtype == dtype
    expected = attend(*full, bias=part, backend="reference")
    torch.testing.assert_close(ours.float(), expected, rtol=0, atol=0.05)


def test_flex_on_a_cpu_refuses_gradients_of_keys():
    q, k, v = inputs()
    with pytest.raises(BackendError, match="computes no gradients"):
        attend(q, k.requires_grad_(), v, backend="flex")


def test_user_registered_backend_runs_by_name(monkeypatch: pytest.MonkeyPatch):
    def run(parts, queries, keys, values, mask, offset) -> Tensor:
        return torch.full((*queries.tensor.shape[:3], values.tensor.shape[-1]), 7.0)

    monkeypatch.delitem(BACKENDS, "sevens", raising=False)
    BACKENDS.register("sevens", Backend(run, lambda *arguments: None))
    try:
        out = Attention(ScaledDot(HEADS, DIM), backend="sevens")(*inputs())
    finally:
        del BACKENDS["sevens"]
    assert out.shape == (2, HEADS, 5, 6)
    assert out.eq(7).all()


class HalvedAlibi(Alibi):
    """ALiBi after halving the score: no added term, whatever its base class declares."""

    def forward(self, scores: Tensor, site) -> Tensor:
        return super().forward(scores / 2, site)


def test_a_bias_that_is_no_added_term_is_never_run_as_one():
    q, k, v = inputs()
    part = HalvedAlibi(HEADS)
    assert (part.is_additive, part.has_slopes) == (False, False)
    with pytest.raises(BackendError, match="supports additive biases only, not HalvedAlibi"):
        attend(q, k, v, bias=part, backend="sdpa")
    distances = (torch.arange(5)[:, None] - torch.arange(7)).abs()
    scores = q @ k.transpose(2, 3) / DIM**0.5 / 2 - part.slopes[:, None, None] * distances
    torch.testing.assert_close(attend(q, k, v, bias=part), scores.softmax(-1) @ v)
