"""The triton backend before a kernel runs: bounds, biases and refusals (kernels: tests/gpu)."""

import pytest
import torch

from regard.attention import SCORES, Attention, causal, everything, prefix, window
from regard.attention.backends import choose_backend, triton
from regard.attention.backends.kernels.launch import Packed, sum_diagonals
from regard.axes import Site
from regard.errors import BackendError
from regard.positions import T5, Alibi, BiasPosition, Distance, Rotary
from regard.ragged import Ragged
from tests.contracts.cases import DIM, HEADS, MASKS, batch

BIASES: dict[str, BiasPosition] = {
    "alibi": Alibi(HEADS),
    "distance": Distance(HEADS, DIM, max_distance=2),
    "t5": T5(HEADS, buckets=8, max_distance=6),
}


@pytest.mark.parametrize("name", [name for name in MASKS if name != "or"])
def test_bounds_equal_the_mask(name: str):
    low, high, stop = MASKS[name].bounds()
    site = Site.grid(torch.zeros(4, 1, 5, 1), torch.zeros(4, 1, 7, 1), 3)
    ahead = site.key - site.query
    allowed = (ahead >= (-99 if low is None else low)) & (ahead <= (99 if high is None else high))
    if stop is not None:
        allowed = allowed & (site.key < torch.as_tensor(stop).view(-1, 1, 1, 1))
    assert torch.equal(allowed.expand(4, 1, 5, 7), MASKS[name](site).expand(4, 1, 5, 7))


def test_bounds_of_two_prefixes_are_the_minimum():
    assert (prefix(3) & prefix(torch.tensor([1, 5]))).bounds().stop.tolist() == [1, 3]
    assert (causal | prefix(2)).bounds() is None


@pytest.mark.parametrize("name", BIASES)
def test_bias_by_distance_equals_the_bias(name: str):
    bias, like = BIASES[name], torch.zeros(3, HEADS, DIM)
    for parameter in bias.parameters():
        torch.nn.init.normal_(parameter)
    written = triton.bias_by_distance(bias, 9, like, 4)
    for head, key in ((0, -9), (HEADS - 1, 9), (2, 5)):
        here = (torch.tensor(place) for place in (0, head, 4, key, 0))
        torch.testing.assert_close(written[head, key + 9], bias(torch.zeros(()), Site(*here)))


@pytest.mark.parametrize("name", ["distance", "t5"])
def test_bias_by_distance_passes_gradients_to_the_table(name: str):
    bias = BIASES[name]
    slope = torch.randn(HEADS, 19)
    site = Site.grid(torch.zeros(1, HEADS, 1, 1), torch.zeros(1, HEADS, 19, 1), 9)
    (expected,) = torch.autograd.grad(
        (bias(torch.zeros(()), site)[0, :, 0] * slope).sum(), bias.table
    )
    (made,) = torch.autograd.grad(
        (triton.bias_by_distance(bias, 9, torch.zeros(1, HEADS, DIM)) * slope).sum(), bias.table
    )
    torch.testing.assert_close(made, expected)


def test_learned_bias_is_constant_beyond_its_limit():
    for bias in (BIASES["distance"], BIASES["t5"]):
        far = triton.bias_by_distance(
            bias, bias.constant_beyond + 50, torch.zeros(1, HEADS, DIM)
        ).detach()
        assert far[:, :51].eq(far[:, :1]).all()
        assert far[:, -51:].eq(far[:, -1:]).all()
    assert BIASES["alibi"].constant_beyond is None


def test_diagonals_by_hand():
    tile = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert sum_diagonals(tile).tolist() == [7, 12, 15, 8, 3]


def test_dense_rows_are_packed_without_a_copy():
    rows = torch.randn(2, 5, 3, 4)  # (batch, time, head, dim), as a projection leaves it
    packed = Packed.of(rows.transpose(1, 2))
    assert packed.rows.data_ptr() == rows.data_ptr()
    assert packed.starts.tolist() == [0, 5]
    ragged = Ragged.of([torch.randn(n, 3, 4) for n in (2, 0, 3)])
    assert Packed.of(ragged).rows is ragged.values
    assert Packed.of(ragged).cut(2).lengths.tolist() == [2, 0, 2]


def test_triton_refuses_a_cpu_and_auto_skips_it():
    attention = Attention(SCORES["scaled-dot"](HEADS, DIM), backend="triton")
    if not triton.is_interpreted():
        with pytest.raises(
            BackendError, match="it runs on a CUDA device only, and these tensors are on cpu"
        ):
            attention(*batch())
    assert choose_backend(attention, torch.zeros(2, HEADS, 5, DIM), uneven=True) == "sdpa"


def test_too_wide_values_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(triton, "_INSTALLED", True)
    monkeypatch.setattr(triton, "_INTERPRETED", True)
    attention = Attention(SCORES["scaled-dot"](2, 16))
    q, v = torch.zeros(1, 2, 140, 16), torch.zeros(1, 2, 140, 300)
    assert triton.cannot(attention, q, everything, 0, q, q) is None
    assert "heads of at most 256 dims only, and dim is 300" in triton.cannot(
        attention, q, everything, 0, q, v
    )


def test_unsupported_masks_and_offsets_are_named():
    attention = Attention(SCORES["scaled-dot"](HEADS, DIM))
    assert "bound the distance of keys only, not (causal | prefix(2))" in triton.cannot(
        attention, mask=causal | prefix(2)
    )
    assert "each has its own" in triton.cannot(attention, offset=torch.tensor([1, 2]))
    assert triton.cannot(attention, mask=causal & window(3), offset=4) is None


@pytest.mark.parametrize("dense", [False, True])
def test_attention_applies_a_rotation(dense: bool):
    rotary, attention = Rotary(DIM), Attention(SCORES["scaled-dot"](HEADS, DIM))
    q, k, v = batch(same=True)
    turned = [x.like(rotary.rotate(x.values, x.positions[:, None])) for x in (q, k)]
    expected = attention(*turned, v, mask=causal)
    seen = attention.intermediates(q, k, v, mask=causal, rotation=rotary)
    assert torch.equal(seen.weights, attention.intermediates(*turned, v, mask=causal).weights)
    if dense:  # the third sequence alone: five queries, five keys
        q, k, v = (x.unbind()[2].transpose(0, 1)[None] for x in (q, k, v))
        made = attention(q, k, v, mask=causal, rotation=rotary)[0].transpose(0, 1)
        torch.testing.assert_close(made, expected.unbind()[2])
    else:
        torch.testing.assert_close(
            attention(q, k, v, mask=causal, rotation=rotary).values, expected.values
        )
