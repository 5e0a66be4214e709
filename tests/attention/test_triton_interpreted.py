"""The Triton kernels by Triton's own interpreter, on a CPU, against the reference in float64.

TRITON_INTERPRET=1 pytest tests/attention/test_triton_interpreted.py  # if triton is installed
"""

import copy

import pytest
import torch

from regard.attention import SCORES, Attention, Mask, causal, everything, window
from regard.attention.backends import triton
from regard.positions import Rotary, position
from tests.contracts.cases import OPTIONS, assert_kernel, double, ragged

pytestmark = pytest.mark.skipif(
    not triton.is_interpreted(), reason="needs triton and TRITON_INTERPRET=1"
)

HEADS, GROUPS, DIM, OUT = 6, 3, 10, 9
CASES = [  # score, bias, mask, offset
    ("scaled-dot", None, everything, 0),
    ("cosine", "distance", causal, 3),
    ("dot", "t5", causal & window(9), 0),
    ("general", "alibi", everything, 0),
    ("additive", "shaw", causal, 0),
    ("scaled-dot", "shaw", causal, 0),
    ("dot", "shaw", window(9), 3),
    ("scaled-dot", "shaw far", window(9), 0),
]
OPTIONS = {
    **OPTIONS,
    "shaw far": {"max_distance": 30},
}  # farther than the mask lets anyone see, and than a small tile


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("longest", [17, 140])
@pytest.mark.parametrize(("score", "bias", "mask", "offset"), CASES)
def test_matches_the_reference(
    score: str, bias: str | None, mask: Mask, offset: int, longest: int, dtype: torch.dtype
):
    if dtype == torch.float16 and score in ("cosine", "general"):
        pytest.skip("eager itself leaves the range of float16")
    if score == "additive" and longest > 50:
        pytest.skip("slow, and one kernel for all lengths")
    if bias and bias.startswith("shaw"):
        longest = min(longest, 40)  # it is one tile or nothing
    lengths = [longest, 0, 3], [5, 4, longest]
    made = bias and position(
        bias.split()[0], width=24, heads=HEADS, dim=DIM, causal=False, **OPTIONS.get(bias, {})
    )
    attention = Attention(SCORES[score](HEADS, DIM), bias=made, backend="triton")
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    attention = attention.to(dtype)
    sizes = ((lengths[0], HEADS, DIM), (lengths[1], GROUPS, DIM), (lengths[1], GROUPS, OUT))
    sequences = [ragged(*size, dtype) for size in sizes]

    def outcome(attention: Attention, dtype: torch.dtype) -> list[torch.Tensor]:
        inputs = [x.values.detach().to(dtype).requires_grad_() for x in sequences]
        given = (x.like(leaf) for x, leaf in zip(sequences, inputs, strict=True))
        out = attention(*given, mask=mask, offset=offset).values
        wanted = [*inputs, *attention.parameters()]
        return [
            out,
            *torch.autograd.grad(
                out.square().sum(), wanted, allow_unused=True, materialize_grads=True
            ),
        ]

    fused, exact = outcome(attention, dtype), outcome(double(attention), torch.float64)
    attention.backend = "reference"
    assert_kernel(fused, outcome(attention, dtype), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize(("score", "offset"), [("scaled-dot", 0), ("dot", 3), ("general", 0)])
@pytest.mark.parametrize("longest", [17, 140])
def test_rotation_matches_the_reference(
    longest: int, score: str, offset: int, pairs: str, dtype: torch.dtype
):
    """Rotation inside the kernel, of queries only inside it, or before it (general score)."""
    rotary, lengths = Rotary(32, pairs=pairs), ([longest, 0, 3], [5, 4, longest])
    sequences = [ragged(lengths[i > 0], (HEADS, GROUPS, GROUPS)[i], 32, dtype) for i in range(3)]
    made = Attention(SCORES[score](HEADS, 32)).to(dtype)

    def run(backend: str, kind: torch.dtype) -> list[torch.Tensor]:
        attention = copy.deepcopy(made).to(kind)
        leaves = [x.values.detach().to(kind).requires_grad_() for x in sequences]
        q, k, v = (x.like(leaf) for x, leaf in zip(sequences, leaves, strict=True))
        if backend == "triton":
            out = triton.run(attention, q, k, v, causal, offset, rotary).values
        else:
            attention.backend = backend
            turned = (
                x.like(rotary.rotate(x.values, x.positions[:, None] + first))
                for x, first in ((q, offset), (k, 0))
            )
            out = attention(*turned, v, mask=causal, offset=offset).values
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    assert_kernel(run("triton", dtype), run("reference", dtype), run("reference", torch.float64))
