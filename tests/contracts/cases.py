"""Every part of attention with options that make it distinct, and batches of odd shapes."""

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from regard.attention import (
    NORMALISERS,
    SCORES,
    Attention,
    Mask,
    causal,
    everything,
    prefix,
    window,
)
from regard.positions import POSITIONS, BiasPosition, position
from regard.ragged import Ragged

HEADS, GROUPS, DIM, OUT = (
    6,
    3,
    10,
    9,
)  # all different: no wrong axis can pass (an even dim, for rotary)
QUERIES, KEYS = [3, 0, 5, 1], [2, 4, 0, 7]  # an empty sequence on either side

MASKS: dict[str, Mask] = {
    "everything": everything,
    "causal": causal,
    "window": window(2),
    "prefix": prefix(1),
    "prefix-each": prefix(torch.tensor([0, 2, 1, 3])),
    "and": causal & window(2),
    "or": causal | prefix(2),
}

KERNELS = ("boxcar", "epanechnikov", "triangular")  # these read a score as −u²/2


def _random(module: torch.nn.Module) -> None:
    """Learned tables that start at zero would test nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()


def _build(score: str, bias: str | None, normaliser: str, backend: str) -> Attention:
    options = {"bandwidth": 4.0} if score == "gaussian" else {}
    made = (
        None
        if bias is None
        else position(bias, width=24, heads=HEADS, dim=DIM, causal=False, **OPTIONS.get(bias, {}))
    )
    attention = Attention(
        SCORES[score](HEADS, DIM, **options), bias=made, normaliser=normaliser, backend=backend
    )
    _random(attention)
    return attention.eval()


OPTIONS = {
    "distance": {"max_distance": 2},
    "shaw": {"max_distance": 2},
    "t5": {"buckets": 8, "max_distance": 6},
}


def _parts() -> Iterator[tuple[str, tuple[str, str | None, str]]]:
    for score in SCORES:
        yield f"score:{score}", (score, None, "softmax")
    for name, kind in POSITIONS.items():
        if issubclass(kind, BiasPosition):
            yield f"bias:{name}", ("scaled-dot", name, "softmax")
    for normaliser in NORMALISERS:
        yield (
            f"normaliser:{normaliser}",
            ("gaussian" if normaliser in KERNELS else "scaled-dot", None, normaliser),
        )


PARTS: dict[str, Callable[[str], Attention]] = {
    name: lambda backend, chosen=chosen: _build(*chosen, backend) for name, chosen in _parts()
}


def ragged(lengths: list[int], heads: int, dim: int, dtype: torch.dtype = torch.float32) -> Ragged:
    return Ragged.of([torch.randn(length, heads, dim, dtype=dtype) for length in lengths])


def batch(
    groups: int = GROUPS, dtype: torch.dtype = torch.float32, same: bool = False
) -> tuple[Ragged, Ragged, Ragged]:
    """Queries, keys and values of different lengths, or (self-attention) of the same."""
    keys = QUERIES if same else KEYS
    layout = (queries := ragged(QUERIES, HEADS, DIM, dtype)).layout
    k, v = ragged(keys, groups, DIM, dtype), ragged(keys, groups, OUT, dtype)
    return (
        (queries, queries.like(k.values), queries.like(v.values))
        if same and layout
        else (queries, k, v)
    )


def double(attention: Attention) -> Attention:
    """The truth: the reference in float64, with the same weights."""
    exact = copy.deepcopy(attention).double()
    exact.backend = "reference"
    return exact


def assert_as_good_as(
    fused: Tensor, eager: Tensor, exact: Tensor, size: float | None = None
) -> None:
    """A fused result may deviate from float64 at most twice as far as eager in its dtype, or by the
    rounding of one number of this `size` (by default, of the largest number in the truth)."""
    if not exact.numel():
        return
    ours, theirs = ((x.double() - exact).abs().max().item() for x in (fused, eager))
    floor = torch.finfo(fused.dtype).eps * (exact.abs().max().item() if size is None else size)
    assert ours <= 2 * theirs + floor, (
        f"fused strays {ours:.1e}, eager {theirs:.1e}, rounding {floor:.1e}"
    )


def assert_kernel(
    fused: Sequence[Tensor], eager: Sequence[Tensor], exact: Sequence[Tensor]
) -> None:
    """The context (first) and gradients of a kernel, each as good as eager's by its own size.

    Gradients in float32 may deviate by four roundings: kernels sum in another order, where eager
    may happen to be exact (see docs/log.md). The interpreter's order differs with every shape, and
    less cancels.
    """
    for at, (ours, theirs, truth) in enumerate(zip(fused, eager, exact, strict=True)):
        assert ours.isfinite().all()
        if truth.numel():
            slack = 1 if ours.dtype != torch.float32 else 64 if not ours.is_cuda else 4 if at else 1
            assert_as_good_as(ours, theirs, truth, slack * truth.abs().max().item())
