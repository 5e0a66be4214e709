"""Sinusoids: the same numbers from the table or computed, cast or not, near or far."""

import contextlib
import math

import pytest
import torch

from regard.positions import Rotary, Sinusoidal
from regard.positions.absolute import LARGEST_TABLE, cos_sin

RATES = (1.0, 0.3, 1e-4)
EDGES = [0, 1, 63, 64, 65, LARGEST_TABLE - 1, LARGEST_TABLE, LARGEST_TABLE + 1, 10**6]


@pytest.mark.parametrize("place", EDGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_position_against_python_math(place: int, dtype: torch.dtype):
    cos, sin = cos_sin(torch.tensor([place]), RATES, dtype)
    assert cos.dtype == sin.dtype == dtype
    exact = 1e-9 if dtype == torch.float64 else 1e-7
    assert cos[0].tolist() == pytest.approx([math.cos(place * rate) for rate in RATES], abs=exact)
    assert sin[0].tolist() == pytest.approx([math.sin(place * rate) for rate in RATES], abs=exact)


def test_positions_before_the_first():
    cos, sin = cos_sin(torch.tensor([-3, 2]), RATES, torch.float64)
    assert sin[0].tolist() == pytest.approx([-math.sin(3 * rate) for rate in RATES], abs=1e-12)
    assert cos[1].tolist() == pytest.approx([math.cos(2 * rate) for rate in RATES], abs=1e-12)


@pytest.mark.parametrize("company", [100, LARGEST_TABLE + 5])
def test_position_does_not_depend_on_its_batch(company: int):
    alone = cos_sin(torch.tensor([7]), RATES, torch.float32)
    together = cos_sin(torch.tensor([[7, company], [0, 3]]), RATES, torch.float32)
    for one, many in zip(alone, together, strict=True):
        assert many.shape == (2, 2, 3)
        assert torch.equal(many[0, 0], one[0])


def test_cached_tables_are_not_modified():
    """The table serves every later caller."""
    for _ in range(2):
        cos, sin = cos_sin(torch.arange(5), RATES, torch.float32)
        assert cos[0].tolist() == [1, 1, 1]
        assert sin[0].tolist() == [0, 0, 0]
        cos.zero_()
        sin.fill_(9)


def test_no_positions():
    cos, sin = cos_sin(torch.zeros(0, dtype=torch.long), RATES, torch.float32)
    assert cos.shape == sin.shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_casting_a_model_keeps_frequencies_exact(dtype: torch.dtype):
    """In bfloat16 a rate would be off by a part in 256: at position 1000, by turns."""
    places = torch.tensor([1, 1000, 100_000])
    assert torch.equal(Sinusoidal(6).to(dtype)(places), Sinusoidal(6)(places))
    vectors = torch.randn(3, 6)
    assert torch.equal(
        Rotary(6).to(dtype).rotate(vectors, places), Rotary(6).rotate(vectors, places)
    )


def test_table_built_in_inference_mode_serves_training():
    rotary, places = Rotary(6, base=123.0), torch.arange(4)
    with torch.inference_mode():
        rotary.rotate(torch.randn(4, 6), places)
    vectors = torch.randn(4, 6, requires_grad=True)
    rotary.rotate(vectors, places).square().sum().backward()
    torch.testing.assert_close(vectors.grad, 2 * vectors.detach())  # turning keeps lengths


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_default_device_does_not_affect_the_cached_table(pairs: str):
    """The table is cached for all later calls, so it must not be built on another device."""
    vectors, positions = torch.randn(5, 6), torch.arange(5)
    rotary = Rotary(6, base=71.0 if pairs == "halves" else 73.0, pairs=pairs)
    with torch.device("meta"), contextlib.suppress(RuntimeError):
        rotary.rotate(vectors, positions)
    assert rotary.rotate(vectors, positions).isfinite().all()
