"""Variants of rotary positions: a fraction of the dims (GPT-NeoX, GPT-J), and neighbouring pairs
(GPT-J, RoFormer)."""

import pytest
import torch
from transformers import GPTNeoXConfig
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.roformer import modeling_roformer as roformer

from regard.positions import Rotary, Sinusoidal

BATCH, HEADS, TIME, DIM = 2, 3, 7, 16
ANGLE = {"rtol": 2e-6, "atol": 5e-6}  # they keep angles in float32


@pytest.mark.parametrize("part", [0.25, 0.5, 0.75, 1.0])
def test_fraction_matches_neox(part: float):
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": part}
    settings = GPTNeoXConfig(
        hidden_size=HEADS * DIM, num_attention_heads=HEADS, rope_parameters=rope
    )
    vectors, positions = torch.randn(BATCH, HEADS, TIME, DIM), torch.randint(50, (BATCH, TIME))
    cos, sin = neox.GPTNeoXRotaryEmbedding(settings)(vectors, positions)
    expected, _ = neox.apply_rotary_pos_emb(vectors, vectors, cos, sin)
    assert cos.shape[-1] == part * DIM
    torch.testing.assert_close(
        Rotary(DIM, fraction=part).rotate(vectors, positions[:, None]), expected, **ANGLE
    )


@pytest.mark.parametrize("turned", [4, 10, 16])
def test_neighbours_match_gptj(turned: int):
    vectors, positions = torch.randn(BATCH, TIME, HEADS, DIM), torch.randint(50, (BATCH, TIME))
    sin, cos = gptj.create_sinusoidal_positions(50, turned)[positions].chunk(2, dim=-1)
    expected = torch.cat(
        [gptj.apply_rotary_pos_emb(vectors[..., :turned], sin, cos), vectors[..., turned:]], -1
    ).transpose(1, 2)
    ours = Rotary(DIM, fraction=turned / DIM, pairs="neighbours")
    torch.testing.assert_close(
        ours.rotate(vectors.transpose(1, 2), positions[:, None]), expected, **ANGLE
    )


def test_neighbours_match_roformer():
    queries, keys = torch.randn(BATCH, HEADS, TIME, DIM), torch.randn(BATCH, HEADS, TIME, DIM)
    waves = roformer.RoFormerSinusoidalPositionalEmbedding(TIME, DIM)
    table = waves.create_weight()[None, None]
    expected = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings(table, queries, keys)
    ours = Rotary(DIM, pairs="neighbours")
    for vectors, theirs in zip((queries, keys), expected, strict=True):
        torch.testing.assert_close(ours.rotate(vectors, torch.arange(TIME)), theirs, **ANGLE)


def test_rotary_angles_equal_sinusoidal_angles():
    """Turned by position p, the pair (1, 0) becomes the cosine and sine of the encoding."""
    positions = torch.arange(TIME)
    unit = torch.zeros(TIME, DIM)
    unit[:, 0::2] = 1
    turned = Rotary(DIM, pairs="neighbours").rotate(unit, positions)
    waves = Sinusoidal(DIM)(positions)
    torch.testing.assert_close(turned[:, 0::2], waves[:, 1::2])
    torch.testing.assert_close(turned[:, 1::2], waves[:, 0::2])


def test_halves_and_neighbours_are_permutations():
    vectors, positions = torch.randn(BATCH, HEADS, TIME, DIM), torch.randint(50, (TIME,))
    order = torch.arange(DIM).view(2, -1).T.flatten()  # 0, 8, 1, 9 …
    halves = Rotary(DIM).rotate(vectors, positions)
    neighbours = Rotary(DIM, pairs="neighbours").rotate(vectors[..., order], positions)
    torch.testing.assert_close(halves[..., order], neighbours)
    assert not torch.allclose(halves, Rotary(DIM, pairs="neighbours").rotate(vectors, positions))
