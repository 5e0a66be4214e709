"""Triton kernels on a GPU against the reference in float64 (`pytest tests/gpu`)."""

import copy

import pytest
import torch

from regard.attention import SCORES, Attention, Mask, MultiHead, causal, everything, window
from regard.attention.backends import triton
from regard.errors import BackendError
from regard.positions import Rotary, position
from regard.ragged import Ragged
from tests.contracts.cases import assert_kernel, double

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

HEADS, GROUPS = 6, 3
SHORT, OTHER = [3, 0, 50, 1, 17, 33], [40, 4, 0, 20, 1, 64]
BIASES = [None, "alibi", "distance", "t5", "shaw"]
DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"]
)


def build(
    bias: str | None, dim: int, dtype: torch.dtype, score: str = "scaled-dot", **options: int
) -> Attention:
    made = (
        None
        if bias is None
        else position(bias, width=24, heads=HEADS, dim=dim, causal=False, **options)
    )
    attention = Attention(SCORES[score](HEADS, dim), bias=made, backend="triton").cuda()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    return attention.to(dtype)


def batch(
    queries: list[int], keys: list[int], dim: int, out: int, dtype: torch.dtype
) -> list[Ragged]:
    torch.manual_seed(2)
    q = Ragged.of([torch.randn(n, HEADS, dim, device="cuda", dtype=dtype) for n in queries])
    k = q if keys == queries else Ragged.of([torch.randn(n, 1, 1, device="cuda") for n in keys])
    return [
        q,
        *(
            k.like(torch.randn(sum(keys), GROUPS, d, device="cuda", dtype=dtype))
            for d in (dim, out)
        ),
    ]


def outcome(
    attention: Attention, sequences: list[Ragged], mask: Mask, **options: object
) -> list[torch.Tensor]:
    inputs = [x.values.detach().requires_grad_() for x in sequences]
    out = attention(
        *(x.like(leaf) for x, leaf in zip(sequences, inputs, strict=True)), mask=mask, **options
    ).values
    weight = torch.linspace(-1, 1, out.numel(), device="cuda", dtype=out.dtype).view_as(out)
    wanted = [*inputs, *attention.parameters()]
    return [
        out,
        *torch.autograd.grad(
            (out * weight).sum(), wanted, allow_unused=True, materialize_grads=True
        ),
    ]


def assert_accurate(
    attention: Attention, sequences: list[Ragged], mask: Mask, **options: object
) -> None:
    """Within twice eager's error of float64, contexts and all gradients."""
    fused = outcome(attention, sequences, mask, **options)
    exact = outcome(
        double(attention), [x.like(x.values.double()) for x in sequences], mask, **options
    )
    attention.backend = "reference"
    eager = outcome(attention, sequences, mask, **options)
    assert_kernel(fused, eager, exact)


@DTYPES
@pytest.mark.parametrize("mask", [everything, causal], ids=repr)
@pytest.mark.parametrize("bias", BIASES)
def test_short_sentences(bias: str | None, mask: Mask, dtype: torch.dtype):
    assert_accurate(build(bias, 64, dtype), batch(SHORT, SHORT, 64, 64, dtype), mask)


@DTYPES
@pytest.mark.parametrize("bias", BIASES)
def test_short_cross_attention_with_odd_sizes(bias: str | None, dtype: torch.dtype):
    assert_accurate(build(bias, 23, dtype), batch(SHORT, OTHER, 23, 9, dtype), window(7))


@DTYPES
@pytest.mark.parametrize("bias", [None, "distance", "shaw"])
@pytest.mark.parametrize("longest", [9, 25, 120])
def test_every_tile(longest: int, bias: str | None, dtype: torch.dtype):
    lengths = [longest, 2, longest // 2]
    assert_accurate(build(bias, 32, dtype), batch(lengths, lengths, 32, 32, dtype), causal)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dim", [128, 256])
def test_wide_heads(dim: int, bias: str | None):
    lengths = [15, 0, 3, 9] if dim == 256 else SHORT  # longer ones with Shaw do not fit in one tile
    assert_accurate(
        build(bias, dim, torch.bfloat16), batch(lengths, lengths, dim, dim, torch.bfloat16), causal
    )


@pytest.mark.parametrize("bias", BIASES)
def test_largest_tile_with_usual_heads(bias: str | None):
    lengths = [120, 68, 3, 0, 64, 65, 128]
    assert_accurate(
        build(bias, 64, torch.bfloat16), batch(lengths, lengths, 64, 64, torch.bfloat16), causal
    )


def assert_rotated(
    rotary: Rotary, bias: str | None, sequences: list[Ragged], dtype: torch.dtype, offset: int = 0
) -> None:
    """Queries and keys rotated inside the kernel equal those rotated before attention."""
    made = build(bias, rotary.dim, dtype)

    def run(backend: str, kind: torch.dtype) -> list[torch.Tensor]:
        attention = copy.deepcopy(made).to(kind)
        leaves = [x.values.detach().to(kind).requires_grad_() for x in sequences]
        q, k, v = (x.like(leaf) for x, leaf in zip(sequences, leaves, strict=True))
        if backend == "triton":
            out = triton.run(attention, q, k, v, causal, offset, rotary).values
        else:
            attention.backend = backend
            rotated = (
                x.like(rotary.rotate(x.values, x.positions[:, None] + o))
                for x, o in ((q, offset), (k, 0))
            )
            out = attention(*rotated, v, mask=causal, offset=offset).values
        return [out, *torch.autograd.grad(out.square().sum(), [*leaves, *attention.parameters()])]

    assert_kernel(run("triton", dtype), run("reference", dtype), run("reference", torch.float64))


@DTYPES
@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize(
    "lengths", [SHORT, [120, 3, 0, 64, 65], [300, 5, 0]], ids=["short", "a whole tile", "long"]
)
def test_rotary_inside(lengths: list[int], pairs: str, dtype: torch.dtype):
    assert_rotated(Rotary(64, pairs=pairs), None, batch(lengths, lengths, 64, 64, dtype), dtype)


@DTYPES
@pytest.mark.parametrize("bias", [None, "distance"])
@pytest.mark.parametrize("longest", [50, 300])
@pytest.mark.parametrize("dim", [32, 128, 256])
def test_rotary_with_offset_and_bias(dim: int, longest: int, bias: str | None, dtype: torch.dtype):
    """Later queries, over keys of other lengths."""
    sequences = batch([longest, 0, 3], [longest + 5, 4, 17], dim, 64, dtype)
    assert_rotated(Rotary(dim), bias, sequences, dtype, offset=9)


@DTYPES
@pytest.mark.parametrize(
    ("bias", "options"),
    [("distance", {"max_distance": 40}), ("t5", {"max_distance": 60}), ("alibi", {})],
)
@pytest.mark.parametrize("mask", [everything, causal], ids=repr)
def test_biases_far_beyond_their_max_distance(
    bias: str, options: dict[str, int], mask: Mask, dtype: torch.dtype
):
    lengths = [700, 0, 301]
    assert_accurate(build(bias, 64, dtype, **options), batch(lengths, lengths, 64, 64, dtype), mask)


@DTYPES
def test_later_queries(dtype: torch.dtype):
    for queries, keys in (([3, 2], [20, 31]), ([3, 200], [300, 231])):
        assert_accurate(
            build("distance", 32, dtype), batch(queries, keys, 32, 32, dtype), causal, offset=17
        )


@DTYPES
@pytest.mark.parametrize("score", ["dot", "scaled-dot"])
def test_later_queries_with_shaw(score: str, dtype: torch.dtype):
    attention = build("shaw", 32, dtype, score, max_distance=7)
    assert_accurate(attention, batch([3, 2], [20, 31], 32, 32, dtype), causal, offset=17)


@DTYPES
@pytest.mark.parametrize("lengths", [SHORT, [300, 5]], ids=["short", "long"])
@pytest.mark.parametrize("normaliser", ["softmax", "sparsemax"])
def test_additive(lengths: list[int], normaliser: str, dtype: torch.dtype):
    attention = build(None, 23, dtype, "additive")
    attention.normaliser = Attention(
        SCORES["additive"](HEADS, 23), normaliser=normaliser
    ).normaliser
    assert_accurate(attention, batch(lengths, lengths, 23, 9, dtype), causal)


@DTYPES
def test_additive_with_fully_masked_rows(dtype: torch.dtype):
    assert_accurate(
        build(None, 23, dtype, "additive"), batch(SHORT, OTHER, 23, 9, dtype), window(7)
    )


def test_long_additive_attention_uses_little_memory():
    q, k, v = (
        torch.randn(1, 1, 4096, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    attention = Attention(SCORES["additive"](1, 256), backend="triton").cuda().bfloat16()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    attention(q, k, v).square().sum().backward()
    assert (torch.cuda.max_memory_allocated() - before) / 2**20 < 200


@pytest.mark.parametrize("lengths", [SHORT, [700, 301]], ids=["short", "long"])
@pytest.mark.parametrize(
    ("score", "bias"), [*(("scaled-dot", bias) for bias in BIASES), ("additive", None)]
)
def test_runs_are_deterministic(score: str, bias: str | None, lengths: list[int]):
    """No kernel adds in a random order."""
    if bias == "shaw" and lengths != SHORT:
        pytest.skip("Shaw is supported in one tile only")
    attention, sequences = (
        build(bias, 64, torch.bfloat16, score),
        batch(lengths, lengths, 64, 64, torch.bfloat16),
    )
    one, other = (outcome(attention, sequences, causal) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def test_shaw_in_a_cuda_graph():
    attention, sequences = (
        build("shaw", 64, torch.bfloat16),
        batch(SHORT, SHORT, 64, 64, torch.bfloat16),
    )
    expected = [
        x.detach() for x in outcome(attention, sequences, causal)
    ]  # the captured graph must not depend on it
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # anything that waits for the device would fail here
        made = outcome(attention, sequences, causal)
    graph.replay()
    assert all(torch.equal(x, y) for x, y in zip(made, expected, strict=True))


def test_refusals_name_the_reason():
    sequences = batch([3, 4], [3, 4], 32, 32, torch.float64)
    with pytest.raises(
        BackendError, match="float32, bfloat16 and float16 only, and these are float64"
    ):
        build(None, 32, torch.float64)(*sequences)
    with pytest.raises(
        BackendError, match=r"Shaw for sentences of one tile only .* has 129 tokens of dim 32"
    ):
        build("shaw", 32, torch.half)(*batch([3, 4], [3, 129], 32, 32, torch.half))
    with pytest.raises(
        BackendError, match="Shaw with a plain dot product only, and the score is Cosine"
    ):
        build("shaw", 32, torch.half, "cosine")(*batch([3], [3], 32, 32, torch.half))


def test_auto_uses_triton_for_short_and_additive():
    from regard.attention import backends

    example = torch.randn(4, 2, 30, 64, device="cuda")
    assert backends.choose_backend(Attention(SCORES["scaled-dot"](2, 64)), example) == "triton"
    assert (
        backends.choose_backend(Attention(SCORES["additive"](2, 64)), example.expand(4, 2, 30, 64))
        == "triton"
    )


def test_auto_uses_another_backend_for_long_shaw():
    attention = build("shaw", 64, torch.float32)
    attention.backend = "auto"
    sequences = batch([3, 4], [3, 129], 64, 64, torch.float32)
    made = outcome(attention, sequences, everything)
    exact = outcome(double(attention), [x.like(x.values.double()) for x in sequences], everything)
    for ours, truth in zip(made, exact, strict=True):  # library kernels have their own rounding
        torch.testing.assert_close(
            ours.double(), truth, rtol=1e-4, atol=1e-4 * truth.abs().max().item()
        )


@pytest.mark.parametrize("lengths", [SHORT, [300, 5, 0]], ids=["short", "long"])
def test_rotated_heads_match_the_cpu(lengths: list[int]):
    layer = MultiHead(96, 3, rotation=Rotary(32))
    vectors = Ragged.of([torch.randn(n, 96) for n in lengths])
    expected = layer(vectors, mask=causal).values
    made = layer.cuda()(vectors.to("cuda"), mask=causal).values
    torch.testing.assert_close(made.cpu(), expected, rtol=1e-4, atol=1e-5)
