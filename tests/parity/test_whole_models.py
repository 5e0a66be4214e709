"""Whole models against HF's BART and T5 1.1 with the same weights, in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from regard.config import TransformerSettings
from regard.models import Model, build
from regard.ragged import Ragged

VOCABULARY, LAYERS = 17, {"encoder_layers": 2, "decoder_layers": 1}
BART = TransformerSettings(
    width=12,
    heads=3,
    ffn_width=10,
    position={"kind": "learned", "max_length": 20},
    norm_order="post",
    activation="gelu",
    embedding_norm=True,
    embedding_scale=1.0,
    output_bias=True,
    tie_embeddings="all",
    **LAYERS,
)
T5 = TransformerSettings(
    width=8,
    heads=3,
    dim=5,
    ffn_width=10,
    position={"kind": "t5", "buckets": 8, "max_distance": 12},
    norm="rms",
    norm_eps=1e-3,
    activation="geglu",
    biases=False,
    embedding_scale=1.0,
    tie_embeddings="inputs",
    **LAYERS,
)
TOLERANCE = {"bart": 1e-9, "t5": 1e-4}  # T5 computes its norms in float32 in any dtype
Weights = dict[str, Tensor]


def randomised(model: torch.nn.Module) -> Weights:
    """Random weights, biases and gains included; returns them by name."""
    torch.manual_seed(2)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.5 * torch.randn_like(tensor))
    return model.double().eval().state_dict()


def bart() -> tuple[Any, Weights]:
    theirs = BartForConditionalGeneration(
        BartConfig(
            vocab_size=VOCABULARY,
            d_model=12,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            encoder_ffn_dim=10,
            decoder_ffn_dim=10,
            max_position_embeddings=20,
            activation_function="gelu",
            **LAYERS,
        )
    )
    w = randomised(theirs)
    ours = {"output.bias": w["final_logits_bias"][0], "source.table": w["model.shared.weight"]}
    names = {"queries": "q_proj", "keys": "k_proj", "values": "v_proj", "out": "out_proj"}
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        ours[f"{side}.position.table"] = w[f"model.{stack}.embed_positions.weight"][2:]
        sublayers = {"self_attn": "self_attention"}
        norms = {"self_attn_layer_norm": 1, "final_layer_norm": 2}
        if stack == "decoder":
            sublayers["encoder_attn"] = "cross_attention"
            norms = {"self_attn_layer_norm": 1, "encoder_attn_layer_norm": 2, "final_layer_norm": 3}
        for end in ("weight", "bias"):
            ours[f"{side}.norm.{end}"] = w[f"model.{stack}.layernorm_embedding.{end}"]
            for i in range(LAYERS[f"{stack}_layers"]):
                layer, their = f"{stack}.{i}", f"model.{stack}.layers.{i}"
                for hf, own in sublayers.items():
                    for role, name in names.items():
                        ours[f"{layer}.{own}.{role}.{end}"] = w[f"{their}.{hf}.{name}.{end}"]
                for hf, place in norms.items():
                    ours[f"{layer}.residual{place}.norm.{end}"] = w[f"{their}.{hf}.{end}"]
                for hf, own in (("fc1", "inner"), ("fc2", "outer")):
                    ours[f"{layer}.feed_forward.{own}.{end}"] = w[f"{their}.{hf}.{end}"]
    return theirs, ours


def t5() -> tuple[Any, Weights]:
    theirs = T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=8,
            d_kv=5,
            d_ff=10,
            num_layers=2,
            num_decoder_layers=1,
            num_heads=3,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=12,
            layer_norm_epsilon=1e-3,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
        )
    )
    w = randomised(theirs)
    ours = {"source.table": w["shared.weight"], "output.table": w["lm_head.weight"]}
    names = {"queries": "q", "keys": "k", "values": "v", "out": "o"}
    for stack in ("encoder", "decoder"):
        ours[f"{stack}_norm.weight"] = w[f"{stack}.final_layer_norm.weight"]
        kinds = ["SelfAttention", "EncDecAttention"] if stack == "decoder" else ["SelfAttention"]
        for i in range(LAYERS[f"{stack}_layers"]):
            layer, their = f"{stack}.{i}", f"{stack}.block.{i}.layer"
            for place, (hf, own) in enumerate(zip(kinds, ("self", "cross"), strict=False)):
                for role, name in names.items():
                    weight = w[f"{their}.{place}.{hf}.{name}.weight"]
                    # T5 does not scale its scores; Regard divides them by √dim
                    scale = 5**0.5 if role == "queries" else 1.0
                    ours[f"{layer}.{own}_attention.{role}.weight"] = weight * scale
            for place in range(len(kinds) + 1):
                norm = w[f"{their}.{place}.layer_norm.weight"]
                ours[f"{layer}.residual{place + 1}.norm.weight"] = norm
            dense = f"{their}.{len(kinds)}.DenseReluDense"
            gates = [w[f"{dense}.{gate}.weight"] for gate in ("wi_0", "wi_1")]
            ours[f"{layer}.feed_forward.inner.weight"] = torch.cat(gates)
            ours[f"{layer}.feed_forward.outer.weight"] = w[f"{dense}.wo.weight"]
        bias = w[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"].T
        ours[f"{stack}.0.self_attention.attention.bias.table"] = bias
    return theirs, ours


def loaded(settings: TransformerSettings, weights: Weights) -> Model:
    """A model whose parameters are all replaced by the given weights."""
    model = build(settings, VOCABULARY, VOCABULARY).double().eval()
    parameters = dict(model.named_parameters())  # each shared one once
    assert parameters.keys() == weights.keys()
    for name, parameter in parameters.items():
        assert parameter.shape == weights[name].shape, name
        parameter.data.copy_(weights[name])
    return model


@pytest.mark.parametrize("name", ["bart", "t5"])
@torch.no_grad()
def test_logits_are_those_of_hugging_face(name: str):
    theirs, weights = bart() if name == "bart" else t5()
    model = loaded(BART if name == "bart" else T5, weights)
    chance = torch.Generator().manual_seed(3)
    for source_length, length in ((1, 1), (5, 3), (18, 19)):
        sizes = (source_length, length)
        source, prefix = (torch.randint(3, VOCABULARY, (n,), generator=chance) for n in sizes)
        ours = model(Ragged.of([source]), Ragged.of([prefix])).values
        expected = theirs(input_ids=source[None], decoder_input_ids=prefix[None]).logits[0]
        torch.testing.assert_close(ours, expected, rtol=0, atol=TOLERANCE[name])
        assert expected.std() > 0.1
