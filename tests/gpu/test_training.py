"""Training on a GPU: fused kernels against float64."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends import triton
from regard.kernels import can_fuse
from regard.training.graph_step import GraphStep
from regard.training.objective import symmetric_kl

CUDA = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = pytest.mark.skipif(
    CUDA.type == "cpu" and not triton.is_interpreted(), reason="needs a GPU, or TRITON_INTERPRET=1"
)
GPU = pytest.mark.skipif(CUDA.type == "cpu", reason="needs a GPU")
KINDS = [
    torch.float32,
    pytest.param(torch.bfloat16, marks=GPU),
]  # the interpreter does not know bfloat16
Make = Callable[..., Sequence[Tensor]]


def assert_near(fused: Tensor, eager: Tensor, truth: Tensor) -> None:
    """At most twice as far from the truth as eager, or a rounding of its type."""
    assert fused.shape == truth.shape
    if not truth.numel():
        return
    scale = truth.abs().max().item()
    least = (
        torch.finfo(fused.dtype).eps * scale * (1 if fused.is_cuda else 10)
    )  # the interpreter adds up one by one
    assert (fused.double() - truth).abs().max() <= max(
        2 * (eager.double() - truth).abs().max().item(), 2 * least
    )


def through(
    make: Make, given: Sequence[Tensor], back: Sequence[Tensor], dtype: torch.dtype
) -> list[Tensor]:
    """Outputs in a dtype, and all gradients given those of the outputs."""
    leaves = [part.detach().to(dtype).requires_grad_() for part in given]
    made = make(*leaves)
    gradients = torch.autograd.grad(
        made, leaves, [part.to(one.dtype) for part, one in zip(back, made, strict=True)]
    )
    return [*(one.detach() for one in made), *gradients]


def assert_as_float64(
    fused: Make, eager: Make, given: Sequence[Tensor], back: Sequence[Tensor]
) -> None:
    """A kernel's numbers and gradients compared with those of eager torch and of float64."""
    kind = given[0].dtype
    runs = (
        through(fused, given, back, kind),
        through(eager, given, back, kind),
        through(eager, given, back, torch.float64),
    )
    for ours, other, truth in zip(*runs, strict=True):
        assert_near(ours, other, truth)


def plain(
    x: Tensor, y: Tensor | None, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    total = x if y is None else x + y
    shape = (x.shape[1],)
    return total, F.rms_norm(total, shape, weight, 1e-6) if bias is None else F.layer_norm(
        total, shape, weight, bias
    )


@pytest.mark.parametrize("width", [20, 256, 512, 1000])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_add_norm_matches_float64(width: int, kind: torch.dtype, centre: bool, added: bool):
    from regard.kernels.add_norm import add_norm

    x, y, g, h = (torch.randn(777, width, device=CUDA).to(kind) for _ in range(4))
    weight, bias = (torch.randn(width, device=CUDA).to(kind) for _ in range(2))
    given = [x, *([y] if added else []), weight, *([bias] if centre else [])]

    def parts(*given: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
        rest = iter(given)
        return next(rest), next(rest) if added else None, next(rest), next(rest) if centre else None

    def fused(*given: Tensor) -> Sequence[Tensor]:
        return add_norm(
            *parts(*given), eps=1e-5 if centre else 1e-6, dropout=0.0, centre=centre, dtype=kind
        )

    assert_as_float64(fused, lambda *given: plain(*parts(*given)), given, [g, h])


def test_dropout_rate_mean_and_backward_agree():
    from regard.kernels.add_norm import add_norm

    x, y = (
        torch.zeros(4000, 512, device=CUDA),
        torch.ones(4000, 512, device=CUDA, requires_grad=True),
    )
    weight = torch.ones(512, device=CUDA)

    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return add_norm(
            x, y, weight, None, eps=1e-6, dropout=0.3, centre=False, dtype=torch.float32
        )[0]

    one, again, other = drawn(1), drawn(1), drawn(2)
    assert torch.equal(one, again)
    dropped = (one == 0).float()
    assert abs(dropped.mean().item() - 0.3) < 0.002  # 2 million draws: six deviations
    assert abs((dropped * (other == 0)).mean().item() - 0.09) < 0.002  # seeds are independent
    assert (
        abs((dropped[1:] * dropped[:-1]).mean().item() - 0.09) < 0.002
    )  # and so are neighbouring rows
    assert abs((dropped[:, 1:] * dropped[:, :-1]).mean().item() - 0.09) < 0.002
    assert torch.equal(torch.autograd.grad(one.sum(), y)[0], one)


@pytest.mark.parametrize("kind", KINDS)
def test_swiglu_matches_float64(kind: torch.dtype):
    from regard.kernels.swiglu import swiglu

    both, g = (
        torch.randn(333, 2 * 1500, device=CUDA).to(kind),
        torch.randn(333, 1500, device=CUDA).to(kind),
    )

    def eager(both: Tensor) -> Sequence[Tensor]:
        a, b = both.chunk(2, -1)
        return [F.silu(a) * b]

    assert_as_float64(lambda both: [swiglu(both)], eager, [both], [g])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("tokens", "vocabulary"), [(0, 43), (50, 43), (1100, 70), pytest.param(3000, 5001, marks=GPU)]
)
def test_linear_cross_entropy_matches_float64(kind, tokens: int, vocabulary: int, monkeypatch):
    from regard.kernels import linear_cross_entropy as module

    monkeypatch.setattr(module, "STRIP_ELEMENTS", 1)  # strips of 1,024
    h, table = (
        torch.randn(tokens, 64, device=CUDA).to(kind),
        (torch.randn(vocabulary, 64, device=CUDA) / 4).to(kind),
    )
    right = torch.randint(vocabulary, (tokens,), device=CUDA)
    right[::7] = -100
    share = torch.tensor(0.01, device=CUDA)

    def fused(h: Tensor, table: Tensor) -> Sequence[Tensor]:
        return [module.linear_cross_entropy([h], table, right, share, label_smoothing=0.1)]

    def eager(h: Tensor, table: Tensor) -> Sequence[Tensor]:
        logits = (h @ table.t()).to(torch.promote_types(h.dtype, torch.float32))
        return [
            F.cross_entropy(logits, right, label_smoothing=0.1, reduction="sum")
            * share.to(logits.dtype)
        ]

    assert_as_float64(fused, eager, [h, table], [torch.tensor(3.0, device=CUDA)])


@GPU
@pytest.mark.parametrize("readings", [1, 2])
def test_linear_cross_entropy_stores_no_full_logits(readings: int):
    from regard.kernels.linear_cross_entropy import linear_cross_entropy

    tokens, vocabulary = 65_536, 32_000
    table = torch.randn(vocabulary, 64, device=CUDA).bfloat16().requires_grad_()
    hs = [torch.randn(tokens, 64, device=CUDA).bfloat16().requires_grad_() for _ in range(readings)]
    right, share = (
        torch.randint(vocabulary, (tokens,), device=CUDA),
        torch.tensor(0.01, device=CUDA),
    )
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    linear_cross_entropy(
        hs, table, right, share, label_smoothing=0.1, rdrop=readings - 1.0
    ).backward()
    all_logits = 2 * readings * tokens * vocabulary  # bytes
    assert table.grad is not None
    assert torch.cuda.max_memory_allocated() - before < all_logits / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("tokens", "vocabulary"), [(50, 43), (1100, 70), pytest.param(3000, 5001, marks=GPU)]
)
def test_rdrop_loss_matches_float64(kind, tokens: int, vocabulary: int, monkeypatch):
    from regard.kernels import linear_cross_entropy as module

    monkeypatch.setattr(module, "STRIP_ELEMENTS", 1)
    given = [torch.randn(tokens, 64, device=CUDA).to(kind) for _ in range(2)]
    given += [(torch.randn(vocabulary, 64, device=CUDA) / 4).to(kind)]
    right = torch.randint(vocabulary, (tokens,), device=CUDA)
    right[::7] = -100
    share = torch.tensor(0.01, device=CUDA)

    def fused(one: Tensor, other: Tensor, table: Tensor) -> Sequence[Tensor]:
        return [
            module.linear_cross_entropy(
                [one, other], table, right, share, label_smoothing=0.1, rdrop=5.0
            )
        ]

    def eager(one: Tensor, other: Tensor, table: Tensor) -> Sequence[Tensor]:
        logits = [
            (h @ table.t()).to(torch.promote_types(h.dtype, torch.float32)) for h in (one, other)
        ]
        crossed = [F.cross_entropy(z, right, label_smoothing=0.1, reduction="sum") for z in logits]
        return [
            (sum(crossed) / 2 + 5.0 / 4 * symmetric_kl(*logits, right != -100))
            * share.to(logits[0].dtype)
        ]

    assert_as_float64(fused, eager, given, [torch.tensor(3.0, device=CUDA)])


def test_embedding_lookup_matches_float64_deterministically():
    from regard.kernels.embedding_lookup import embedding_lookup

    ids = torch.randint(60, (9000,), device=CUDA) ** 2 % 61  # some often, some never
    table, g = (
        torch.randn(70, 300, device=CUDA, requires_grad=True),
        torch.randn(9000, 300, device=CUDA),
    )
    rows = embedding_lookup(ids, table, 3.0)
    assert torch.equal(rows, F.embedding(ids, table) * 3.0)
    ours = torch.autograd.grad(rows, table, g)[0]
    exact = table.detach().double().requires_grad_()
    truth = torch.autograd.grad(F.embedding(ids, exact) * 3.0, exact, g.double())[0]
    eager = torch.autograd.grad(F.embedding(ids, table) * 3.0, table, g)[0]
    assert_near(ours, eager, truth)
    for _ in range(3):
        assert torch.equal(
            torch.autograd.grad(embedding_lookup(ids, table, 3.0), table, g)[0], ours
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3])
def test_fused_linear_matches_float64(kind: torch.dtype, count: int):
    from regard.kernels.fused_linear import fused_linear

    x, g = (
        torch.randn(5000, 96, device=CUDA).to(kind),
        torch.randn(5000, 70 * count, device=CUDA).to(kind),
    )
    weights = [torch.randn(70, 96, device=CUDA).to(kind) / 10 for _ in range(count)]
    biases = [torch.randn(70, device=CUDA).to(kind) for _ in range(count)]

    def fused(x: Tensor, *parts: Tensor) -> Sequence[Tensor]:
        return [fused_linear(x, list(parts[:count]), list(parts[count:]))]

    def eager(x: Tensor, *parts: Tensor) -> Sequence[Tensor]:
        return [F.linear(x, torch.cat(parts[:count]), torch.cat(parts[count:]))]

    assert_as_float64(fused, eager, [x, *weights, *biases], [g])


def test_weight_casts_are_refreshed_each_step():
    from regard.kernels.weight_cast import WeightCast, cast_and_concat

    halves, weights = WeightCast(), tuple(torch.randn(4, 5, device=CUDA) for _ in range(2))
    with halves.active():
        first = cast_and_concat(weights, torch.bfloat16)
        assert torch.equal(first, torch.cat(weights).bfloat16())
    weights[1].mul_(2)
    with halves.active():
        again = cast_and_concat(weights, torch.bfloat16)
    assert again.data_ptr() == first.data_ptr()  # a captured graph needs a fixed address
    assert torch.equal(again, torch.cat(weights).bfloat16())
    weights[0].add_(1)
    assert torch.equal(
        cast_and_concat(weights, torch.bfloat16), torch.cat(weights).bfloat16()
    )  # outside, nothing is cached


@GPU
def test_kernels_support_model_tensors():
    assert can_fuse(torch.zeros(3, 512, device=CUDA))
    assert not can_fuse(torch.zeros(3, 512, device=CUDA, dtype=torch.float64))
    assert isinstance(
        GraphStep(lambda batch: batch.token_weight, batch_tokens=1000, device=CUDA).granularity, int
    )
