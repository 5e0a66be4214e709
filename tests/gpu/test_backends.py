"""Backends on a GPU against the reference in float64 (`pytest tests/gpu` on a GPU machine)."""

import pytest
import torch

from regard.attention import BACKENDS, SCORES, Attention, Mask, causal, everything, prefix, window
from regard.attention.backends.kernels.launch import MAX_TILE
from regard.errors import BackendError
from regard.positions import POSITIONS, BiasPosition, position
from regard.ragged import Ragged
from tests.contracts.cases import assert_as_good_as, assert_kernel, double

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

HEADS, GROUPS, DIM = 6, 3, 32
LENGTHS = [3, 0, 150, 1, 37]
BIASES = [None, *(name for name, kind in POSITIONS.items() if issubclass(kind, BiasPosition))]
MASKS: dict[str, Mask] = {
    "everything": everything,
    "causal": causal,
    "window": causal & window(20),
    "nothing": prefix(0),
}


def build(bias: str | None, backend: str, score: str = "scaled-dot") -> Attention:
    made = None if bias is None else position(bias, width=24, heads=HEADS, dim=DIM, causal=False)
    attention = Attention(SCORES[score](HEADS, DIM), bias=made, backend=backend).cuda()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    return attention


def batch(dtype: torch.dtype, longest: int = 150) -> list[Ragged]:
    torch.manual_seed(1)
    lengths = [min(length, longest) for length in LENGTHS]
    queries = Ragged.of([torch.randn(n, HEADS, DIM, device="cuda", dtype=dtype) for n in lengths])
    others = [torch.randn(sum(lengths), GROUPS, DIM, device="cuda", dtype=dtype) for _ in range(2)]
    return [queries, *map(queries.like, others)]


def outcome(
    attention: Attention, sequences: list[Ragged], mask: Mask
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    inputs = [x.values.detach().requires_grad_() for x in sequences]
    out = attention(
        *(x.like(leaf) for x, leaf in zip(sequences, inputs, strict=True)), mask=mask
    ).values
    wanted = [*inputs, *attention.parameters()]
    weight = torch.linspace(-1, 1, out.numel(), device="cuda", dtype=out.dtype).view_as(out)
    return out, list(
        torch.autograd.grad((out * weight).sum(), wanted, allow_unused=True, materialize_grads=True)
    )


@pytest.mark.parametrize("backend", ["sdpa", "flex", "triton"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_matches_the_reference_in_float64(
    backend: str, mask: str, bias: str | None, dtype: torch.dtype
):
    attention = build(bias, backend).to(dtype)
    if BACKENDS[backend].cannot(attention):
        pytest.skip("not supported by this backend")
    one_tile = backend == "triton" and getattr(
        attention.bias, "needs_query", False
    )  # refused for longer sequences
    sequences = batch(dtype, MAX_TILE if one_tile else 150)
    fused, slopes = outcome(attention, sequences, MASKS[mask])
    exact, true_slopes = outcome(
        double(attention), [x.like(x.values.double()) for x in sequences], MASKS[mask]
    )
    attention.backend = "reference"
    eager, plain_slopes = outcome(attention, sequences, MASKS[mask])
    if backend == "triton":
        assert_kernel([fused, *slopes], [eager, *plain_slopes], [exact, *true_slopes])
        return
    assert fused.isfinite().all()
    assert_as_good_as(fused, eager, exact)
    # Library kernels subtract terms as large as the largest gradient, which adds rounding errors
    # where eager may be exact.
    size = 16 * max(slope.abs().max().item() for slope in true_slopes)
    for ours, theirs, truth in zip(slopes, plain_slopes, true_slopes, strict=True):
        assert_as_good_as(ours, theirs, truth, size)


@pytest.mark.parametrize("score", [name for name, kind in SCORES.items() if kind.is_dot])
@pytest.mark.parametrize("backend", ["sdpa", "flex", "triton"])
def test_every_dot_score(score: str, backend: str):
    attention, sequences = build(None, backend, score), batch(torch.float32)
    fused, slopes = outcome(attention, sequences, causal)
    exact, true_slopes = outcome(
        double(attention), [x.like(x.values.double()) for x in sequences], causal
    )
    attention.backend = "reference"
    assert_as_good_as(fused, outcome(attention, sequences, causal)[0], exact)
    for ours, truth in zip(slopes, true_slopes, strict=True):
        torch.testing.assert_close(
            ours.double(), truth, rtol=1e-4, atol=1e-4 * truth.abs().max().item()
        )


def test_flex_refuses_a_small_dim():
    attention = Attention(SCORES["scaled-dot"](2, 8), backend="flex")
    tokens = torch.randn(1, 2, 5, 8, device="cuda")
    with pytest.raises(BackendError, match="needs a dim of at least 16, and dim is 8"):
        attention(tokens, tokens, tokens)


def test_changing_batches_do_not_recompile():
    attention = build("alibi", "flex")
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    for length in (150, 160, 170, 180, 190, 200):
        tokens = torch.randn(2, HEADS, length, DIM, device="cuda")
        attention(tokens, tokens, tokens, mask=causal)
    assert 1 <= graphs["unique_graphs"] - before <= 2


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
def test_reference_ignores_masked_values_that_are_not_finite(number: float):
    attention = build(None, "reference")
    q, k, v = (torch.randn(2, HEADS, 40, DIM, device="cuda") for _ in range(3))
    spoilt, clean = v.clone(), v.clone()
    spoilt[:, :, 30], clean[:, :, 30] = number, 0
    found = attention(q, k, spoilt, mask=causal)
    torch.testing.assert_close(found[:, :, :30], attention(q, k, clean, mask=causal)[:, :, :30])
    assert found[:, :, 30:].isnan().all()


@pytest.mark.parametrize("longest", [40, 600])
def test_triton_does_not_read_values_beyond_a_prefix(longest: int):
    attention = build(None, "triton")
    q, k, v = (torch.randn(2, HEADS, longest, DIM, device="cuda") for _ in range(3))
    spoilt = v.clone()
    spoilt[:, :, 30:] = float("nan")
    mask = prefix(30)
    torch.testing.assert_close(attention(q, k, spoilt, mask=mask), attention(q, k, v, mask=mask))
