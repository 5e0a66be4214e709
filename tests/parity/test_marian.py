"""Sinusoidal positions against HF Marian and RoFormer, which put sines before cosines."""

import pytest
import torch
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from regard.positions import Sinusoidal

POSITIONS = 600


@pytest.mark.parametrize("width", [2, 3, 7, 10, 64, 129])
def test_halves_match_marian(width: int):
    theirs = MarianSinusoidalPositionalEmbedding(POSITIONS, width).create_weight()
    ours = Sinusoidal(width, order="halves")(torch.arange(POSITIONS))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-7)


@pytest.mark.parametrize("width", [2, 3, 10, 129])
def test_paired_is_a_permutation_of_marian(width: int):
    theirs = MarianSinusoidalPositionalEmbedding(POSITIONS, width).create_weight()
    sines = (width + 1) // 2
    paired = torch.empty(POSITIONS, width)
    paired[:, 0::2], paired[:, 1::2] = theirs[:, :sines], theirs[:, sines:]
    torch.testing.assert_close(
        Sinusoidal(width)(torch.arange(POSITIONS)), paired, rtol=0, atol=2e-7
    )


def test_batched_positions_match():
    module = MarianSinusoidalPositionalEmbedding(POSITIONS, 10)
    with torch.no_grad():
        module.weight.copy_(module.create_weight())
    positions = torch.tensor([[4, 0, 599], [7, 7, 31]])
    expected = module((2, 3), position_ids=positions)
    torch.testing.assert_close(
        Sinusoidal(10, order="halves")(positions), expected, rtol=0, atol=2e-7
    )
