"""Rotary positions against HF Transformers' Llama: frequencies, vectors, and a GQA layer."""

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from regard import Cache, MultiHead, causal
from regard.positions import Rotary

BATCH, HEADS, GROUPS, DIM, WIDTH, TRAINED = 2, 6, 3, 10, 18, 16
ANGLE = {
    "rtol": 2e-6,
    "atol": 1e-5,
}  # they keep angles in float32, which is this far off at position 60


def config(**rope: object) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        head_dim=DIM,
        max_position_embeddings=TRAINED,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, **rope},
        attn_implementation="eager",
    )


def turned(theirs: LlamaRotaryEmbedding, vectors: Tensor, positions: Tensor) -> Tensor:
    cos, sin = theirs(vectors, positions)
    return apply_rotary_pos_emb(vectors, vectors, cos, sin)[0]


@pytest.mark.parametrize(
    ("rope", "options"),
    [
        ({}, {}),
        ({"rope_theta": 500.0}, {"base": 500.0}),
        ({"rope_type": "linear", "factor": 4.0}, {"scaling": "linear", "factor": 4.0}),
        (
            {"rope_type": "linear", "factor": 2.5, "rope_theta": 77.0},
            {"scaling": "linear", "factor": 2.5, "base": 77.0},
        ),
    ],
    ids=["default", "base", "linear", "linear-base"],
)
def test_rotated_vectors_match(rope: dict[str, object], options: dict[str, object]):
    theirs, ours = LlamaRotaryEmbedding(config(**rope)), Rotary(DIM, **options)
    torch.testing.assert_close(torch.tensor(ours.frequencies), theirs.inv_freq)
    vectors, positions = (
        torch.randn(BATCH, HEADS, 7, DIM),
        torch.tensor([[0, 1, 2, 3, 5, 8, 13], [60, 0, 9, 4, 4, 7, 1]]),
    )
    torch.testing.assert_close(
        ours.rotate(vectors, positions[:, None]), turned(theirs, vectors, positions), **ANGLE
    )


@pytest.mark.parametrize(("factor", "length"), [(1.0, 40), (2.0, 40), (3.0, 17), (4.0, 64)])
def test_ntk_matches_dynamic_ntk(factor: float, length: int):
    theirs = LlamaRotaryEmbedding(config(rope_type="dynamic", factor=factor))
    vectors, positions = torch.randn(1, HEADS, length, DIM), torch.arange(length)[None]
    expected = turned(theirs, vectors, positions)
    ours = Rotary(DIM, scaling="ntk", factor=factor * length / TRAINED - (factor - 1))
    torch.testing.assert_close(torch.tensor(ours.frequencies), theirs.inv_freq)
    torch.testing.assert_close(ours.rotate(vectors, positions[:, None]), expected, **ANGLE)
    assert not torch.allclose(
        torch.tensor(Rotary(DIM).frequencies), theirs.inv_freq
    )  # the stretch is there to be seen


def layers(**options: object) -> tuple[LlamaAttention, LlamaRotaryEmbedding, MultiHead]:
    rope = {"rope_type": "linear", "factor": 2.0} if options else {}
    settings = config(**rope)
    theirs = LlamaAttention(settings, layer_idx=0).double().eval()
    ours = MultiHead(
        WIDTH,
        HEADS,
        attention=HEADS * DIM,
        kv_heads=GROUPS,
        biases=False,
        rotation=Rotary(DIM, **options),
        backend="reference",
    ).double()
    names = {"queries": "q_proj", "keys": "k_proj", "values": "v_proj", "out": "o_proj"}
    ours.load_state_dict(
        {f"{name}.weight": getattr(theirs, other).weight for name, other in names.items()}
    )
    return theirs, LlamaRotaryEmbedding(settings), ours.eval()


OPTIONS = pytest.mark.parametrize(
    "options", [{}, {"scaling": "linear", "factor": 2.0}], ids=["default", "linear"]
)


@OPTIONS
@torch.no_grad()
def test_a_whole_layer_with_grouped_keys(options: dict[str, object]):
    theirs, rotary, ours = layers(**options)
    x = torch.randn(BATCH, 9, WIDTH, dtype=torch.float64)
    triangle = torch.zeros(9, 9, dtype=torch.float64).masked_fill(
        torch.ones(9, 9).triu(1).bool(), float("-inf")
    )
    expected, _ = theirs(x, rotary(x, torch.arange(9)[None]), triangle[None, None])
    torch.testing.assert_close(ours(x, mask=causal), expected, rtol=1e-6, atol=1e-6)


@OPTIONS
@torch.no_grad()
def test_cached_steps_match(options: dict[str, object]):
    theirs, rotary, ours = layers(**options)
    x, cache, ours_cache = (
        torch.randn(BATCH, 9, WIDTH, dtype=torch.float64),
        DynamicCache(),
        Cache(),
    )
    for place, step in enumerate(x.split(1, dim=1)):
        expected, _ = theirs(
            step, rotary(step, torch.tensor([[place]])), None, past_key_values=cache
        )
        got, ours_cache = ours.step(step, ours_cache, mask=causal)
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours_cache.keys.tensor, cache.layers[0].keys, rtol=1e-6, atol=1e-6)
