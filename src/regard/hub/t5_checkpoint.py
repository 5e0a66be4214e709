"""Checkpoints of T5, T5 1.1, Flan-T5, mT5 and ByT5.

T5 does not scale its dot products: √dim is folded into the queries. T5 1.0 scales the last vectors
by 1/√width before a tied output; its table is stored with that factor, which the usual √width of
the embeddings undoes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from regard.hub.checkpoint_config import MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, CheckpointConfig
from regard.hub.checkpoint_tensors import CheckpointTensors, ConvertedCheckpoint, Weights, tie
from regard.text.template import Template

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "silu": "silu",
    "gated-gelu": "geglu",
    "gated-gelu_new": "geglu",
    "gated-silu": "swiglu",
}
GATED = ("geglu", "swiglu")
EPS = 1e-6  # the default of RMSNorm
UNUSED_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


@dataclass(frozen=True)
class T5Sizes:
    """The sizes of a T5 model."""

    width: int
    heads: int
    dim: int
    inner: int
    gated: bool
    buckets: int


@dataclass(frozen=True)
class T5Shape:
    """A kind of T5; `scales_output` where the output factor follows from tied embeddings."""

    defaults: dict[str, Any]
    scales_output: bool = True

    def __call__(self, config: CheckpointConfig, tensors: CheckpointTensors) -> ConvertedCheckpoint:
        config = config.with_defaults(self.defaults)
        activation = config.choice("feed_forward_proj", ACTIVATIONS)
        sizes = T5Sizes(
            width=config.width("d_model"),
            heads=config.width("num_heads"),
            dim=config.width("d_kv"),
            inner=config.width("d_ff"),
            gated=activation in GATED,
            buckets=config.integer("relative_attention_num_buckets", 2, MAX_WIDTH),
        )
        vocabulary = config.integer("vocab_size", 3, MAX_VOCABULARY)
        layers = {"encoder": config.integer("num_layers", 1, MAX_LAYERS)}
        layers["decoder"] = layers["encoder"]
        if config.get("num_decoder_layers") is not None:
            layers["decoder"] = config.integer("num_decoder_layers", 1, MAX_LAYERS)
        scale, tied, weights = self._tables(config, tensors, vocabulary, sizes.width)
        for side, count in layers.items():
            weights |= _position(tensors, side, sizes)
            for layer in range(count):
                weights |= _layer(tensors, side, layer, sizes)
            final = tensors.read(f"{side}.final_layer_norm.weight", sizes.width)
            weights[f"{side}_norm.weight"] = final
        tensors.ignore(UNUSED_BIAS)
        tensors.check_all_used()
        eps = config.number("layer_norm_epsilon", 1e-12, 1)
        distance = config.integer("relative_attention_max_distance", 2, 1 << 20)
        settings: dict[str, Any] = {
            "kind": "transformer",
            "width": sizes.width,
            "heads": sizes.heads,
            "dim": None if sizes.dim * sizes.heads == sizes.width else sizes.dim,
            "encoder_layers": layers["encoder"],
            "decoder_layers": layers["decoder"],
            "ffn_width": sizes.inner,
            "position": {"kind": "t5", "buckets": sizes.buckets, "max_distance": distance},
            "norm": "rms",
            "norm_order": "pre",
            "norm_eps": None if eps == EPS else eps,
            "activation": activation,
            "biases": False,
            "embedding_scale": scale,
            "dropout": config.number("dropout_rate", 0, 0.99),
            "tie_embeddings": tied,
        }
        template = _template(config, vocabulary)
        return ConvertedCheckpoint(settings, weights, (vocabulary, vocabulary), template)

    def _tables(
        self, config: CheckpointConfig, tensors: CheckpointTensors, vocabulary: int, width: int
    ) -> tuple[float | None, str, Weights]:
        """The factor of the embeddings, `model.tie_embeddings`, and the tables."""
        copies = [f"{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
        shared = tensors.read_first(["shared.weight", *copies], vocabulary, width)
        output = tensors.read_first(["lm_head.weight", "shared.weight", *copies], vocabulary, width)
        if not self._is_scaled(config):
            return 1.0, *tie(shared, shared, output)
        factor = width**-0.5
        if torch.equal(shared, output):
            return None, "all", {"source.table": shared * factor}
        return 1.0, "inputs", {"source.table": shared, "output.table": output * factor}

    def _is_scaled(self, config: CheckpointConfig) -> bool:
        if config.get("scale_decoder_outputs") is not None:
            return config.flag("scale_decoder_outputs")
        return self.scales_output and config.get("tie_word_embeddings") is not False


def _position(tensors: CheckpointTensors, side: str, sizes: T5Sizes) -> Weights:
    """The bias table of a stack, stored in its first layer and used by all."""
    name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    table = tensors.read(name, sizes.buckets, sizes.heads)
    return {f"{side}.0.self_attention.attention.bias.table": table.T.contiguous()}


def _layer(tensors: CheckpointTensors, side: str, layer: int, sizes: T5Sizes) -> Weights:
    """A layer of the encoder or the decoder."""
    name, out = f"{side}.block.{layer}.layer", f"{side}.{layer}"
    width, inside = sizes.width, sizes.heads * sizes.dim
    attentions = {"self_attention": "0.SelfAttention"}
    if side == "decoder":
        attentions["cross_attention"] = "1.EncDecAttention"
    weights: Weights = {}
    for attention, theirs in attentions.items():
        for role, letter in (("queries", "q"), ("keys", "k"), ("values", "v")):
            matrix = tensors.read(f"{name}.{theirs}.{letter}.weight", inside, width)
            factor = math.sqrt(sizes.dim) if role == "queries" else 1.0
            weights[f"{out}.{attention}.{role}.weight"] = matrix * factor
        outer = tensors.read(f"{name}.{theirs}.o.weight", width, inside)
        weights[f"{out}.{attention}.out.weight"] = outer
    last = len(attentions)
    for number in range(last + 1):
        norm = tensors.read(f"{name}.{number}.layer_norm.weight", width)
        weights[f"{out}.residual{number + 1}.norm.weight"] = norm
    dense = f"{name}.{last}.DenseReluDense"
    parts = ("wi_0", "wi_1") if sizes.gated else ("wi",)
    inner = [tensors.read(f"{dense}.{part}.weight", sizes.inner, width) for part in parts]
    weights[f"{out}.feed_forward.inner.weight"] = torch.cat(inner)
    outer = tensors.read(f"{dense}.wo.weight", width, sizes.inner)
    weights[f"{out}.feed_forward.outer.weight"] = outer
    return weights


def _template(config: CheckpointConfig, size: int) -> Template:
    end, pad = config.token("eos_token_id", size), config.token("pad_token_id", size)
    start = config.token("decoder_start_token_id", size, optional=True)
    assert end is not None
    assert pad is not None
    banned = {*config.single_tokens(size), pad} - {end}
    return Template(
        end=end,
        start=(pad if start is None else start,),
        source_suffix=(end,),
        banned=tuple(sorted(banned)),
    )


def _defaults(**changes: Any) -> dict[str, Any]:
    """The values that a configuration may leave out."""
    sizes = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
    positions = {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
    tokens = {"pad_token_id": 0, "eos_token_id": 1, "vocab_size": 32128}
    other = {"feed_forward_proj": "relu", "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6}
    return {**sizes, **positions, **tokens, **other, **changes}


T5_CHECKPOINT = T5Shape(_defaults())
MT5_CHECKPOINT = T5Shape(
    _defaults(
        vocab_size=250112,
        d_ff=1024,
        num_layers=8,
        num_heads=6,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    ),
    scales_output=False,
)
