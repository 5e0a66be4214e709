"""measured: the table `auto` reads has an answer for every case, and what it answers can run."""

from itertools import product

import pytest
import torch

from regard.attention import BACKENDS, NORMALISERS, SCORES, Attention, causal, prefix
from regard.attention.backends import choose_backend, triton
from regard.attention.backends import dispatch_table as measured
from regard.positions import BiasPosition, position

HEADS, DIM = 2, 16
BIASES = ("alibi", "distance", "t5", "shaw")


class Elsewhere(torch.Tensor):
    """A tensor that claims to be on a GPU, for checks without computation."""

    is_cuda = True


def on_gpu(time: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(1, HEADS, time, DIM, dtype=dtype).as_subclass(Elsewhere)


def attention(
    score: str = "scaled-dot", bias: str | None = None, normaliser: str = "softmax"
) -> Attention:
    made = (
        None
        if bias is None
        else position(bias, width=HEADS * DIM, heads=HEADS, dim=DIM, causal=False)
    )
    assert made is None or isinstance(made, BiasPosition)
    return Attention(SCORES[score](HEADS, DIM), bias=made, normaliser=normaliser)


def test_table_covers_every_case_and_ends_in_reference():
    wanted = set(product(("cuda", "cpu"), ("plain", "biased", "additive"), ("even", "uneven")))
    assert set(measured.DISPATCH) == wanted
    for case, longest in product(wanted, (1, 128, 129, 255, 256, 10_000)):
        names = measured.backend_order(*case, longest)
        assert set(names) <= set(BACKENDS)
        assert len(set(names)) == len(names)
        assert names[-1] == "reference"


def test_lengths_change_at_128_and_256():
    orders = [measured.backend_order("cuda", "plain", "even", longest)[0] for longest in (128, 129)]
    assert orders == ["triton", "sdpa"]
    assert [
        "flex" in measured.backend_order("cuda", "biased", "even", longest)
        for longest in (255, 256)
    ] == [
        False,
        True,
    ]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("bias", [None, *BIASES])
@pytest.mark.parametrize("mask", [causal, causal | prefix(2)], ids=repr)
def test_auto_chooses_a_backend_that_can_run(
    score: str, bias: str | None, mask, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(triton, "_INSTALLED", True)
    for normaliser, time, uneven, dtype in product(
        NORMALISERS, (7, 200, 300), (False, True), (torch.half, torch.double)
    ):
        parts = attention(score, bias, normaliser)
        for example in (on_gpu(time, dtype), torch.zeros(1, HEADS, time, DIM)):
            taken = choose_backend(parts, example, mask, uneven=uneven)
            assert BACKENDS[taken].cannot(parts, example, mask, 0) is None


@pytest.mark.parametrize(
    ("parts", "time", "uneven", "taken"),
    [
        (
            {},
            60,
            False,
            "triton",
        ),  # 25 k tokens in 5–60: 5.9 × varlen, 4.5 × padded sdpa (benchmarks/gpu_kernels.py)
        ({}, 60, True, "triton"),
        ({}, 4096, False, "sdpa"),  # 400 TF/s where flex has 251 (benchmarks/attention.py)
        ({}, 4096, True, "triton"),
        (
            {"bias": "distance"},
            4096,
            False,
            "triton",
        ),  # 383 TF/s with a learned table (benchmarks/gpu_kernels.py)
        ({"bias": "alibi"}, 4096, False, "triton"),
        ({"bias": "shaw"}, 60, False, "triton"),
        ({"bias": "shaw"}, 128, True, "triton"),
        (
            {"bias": "shaw"},
            129,
            True,
            "sdpa",
        ),  # a bias by the query: our kernels have it in one tile alone
        ({"bias": "shaw"}, 4096, False, "flex"),
        ({"score": "additive"}, 4096, False, "triton"),
        ({"score": "additive", "bias": "shaw"}, 4096, False, "triton"),
        ({"score": "gaussian"}, 60, True, "reference"),
    ],
    ids=str,
)
@torch.no_grad()
def test_auto_on_a_gpu_follows_the_table(
    parts, time, uneven, taken, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(triton, "_INSTALLED", True)
    assert choose_backend(attention(**parts), on_gpu(time), uneven=uneven) == taken


@torch.no_grad()
def test_auto_uses_triton_for_shaw_in_one_tile(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(triton, "_INSTALLED", True)
    parts, short, many = attention(bias="shaw"), on_gpu(60), on_gpu(129)
    wide = torch.zeros(1, HEADS, 60, 256).as_subclass(Elsewhere)
    assert choose_backend(parts, short, causal, 0, short, short) == "triton"
    assert choose_backend(parts, short, causal, 0, many, many) == "sdpa"
    assert choose_backend(parts, short, causal, 0, short, wide) == "sdpa"
    reason = (
        "it supports Shaw for sentences of one tile only (at most 128 tokens, fewer for wide heads)"
    )
    assert (
        triton.cannot(parts, short, causal, 0, many)
        == f"{reason}, and the longest has 129 tokens of dim 16"
    )
    parts.score = SCORES["cosine"](HEADS, DIM)
    assert (
        triton.cannot(parts)
        == "it supports Shaw with a plain dot product only, and the score is Cosine"
    )


def test_auto_without_triton_uses_the_next_best(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(triton, "_INSTALLED", False)
    assert choose_backend(attention(), on_gpu(60), uneven=True) == "sdpa"
    with torch.no_grad():
        assert choose_backend(attention(bias="distance"), on_gpu(300)) == "flex"
