"""Dropout: rate, mean and gradient, counted on many numbers."""

import pytest
import torch

from regard.models.parts import Dropout

MANY = 200_000


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_the_rate_is_exact_and_the_mean_stays(rate):
    out = Dropout(rate)(torch.ones(MANY))
    dropped = (out == 0).double().mean().item()
    exact = round(rate * 256) / 256
    assert abs(exact - rate) <= 1 / 512
    assert dropped == pytest.approx(exact, abs=5 * (exact * (1 - exact) / MANY) ** 0.5)
    assert out.unique().tolist() == pytest.approx([0, 1 / (1 - exact)])
    assert out.double().mean().item() == pytest.approx(
        1, abs=5 * (exact / (1 - exact) / MANY) ** 0.5
    )


def test_neighbours_are_dropped_independently():
    dropped = (Dropout(0.5)(torch.ones(MANY)) == 0).double()
    for distance in (1, 7, 8, 64):
        both = (dropped[:-distance] * dropped[distance:]).mean().item()
        assert both == pytest.approx(0.25, abs=0.006)


def test_without_dropout_the_same_tensor_is_returned():
    x = torch.randn(5, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_gradient_is_the_mask_times_the_scale():
    x = torch.randn(50, 7, requires_grad=True)
    out = Dropout(0.25)(x)
    upstream = torch.randn(50, 7)
    (gradient,) = torch.autograd.grad(out, x, upstream)
    kept = out != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(gradient, torch.where(kept, upstream / 0.75, 0))
    torch.testing.assert_close(out, torch.where(kept, x / 0.75, 0))


def test_the_seed_determines_a_sequence_of_masks():
    x, dropout = torch.ones(1_001), Dropout(0.5)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (9, 2), (2, 3, 5)])
def test_shape_and_dtype_stay(shape):
    x = torch.ones(shape, dtype=torch.float64)
    out = Dropout(0.5)(x)
    assert (out.shape, out.dtype) == (x.shape, x.dtype)
    assert torch.equal(x, torch.ones_like(x))  # the input is not written to


@pytest.mark.parametrize("rate", [0.0015, 0.999])
def test_extreme_rates_drop_some_numbers_but_not_all(rate):
    dropped = Dropout(rate).train()(torch.ones(MANY))
    assert 0 < (dropped == 0).float().mean() < 1
    assert dropped.mean() == pytest.approx(1, abs=0.1)
