"""Checkpoints shaped like BART: Marian, BART, mBART, M2M100/NLLB, Pegasus, Blenderbot and FSMT.

They differ in norms, positions and special tokens. Sinusoids become learned tables, and of two
feed-forward widths the smaller is filled with zeros: both are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.hub.checkpoint_config import (
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCABULARY,
    CheckpointConfig,
)
from regard.hub.checkpoint_tensors import (
    CheckpointTensors,
    ConvertedCheckpoint,
    Weights,
    tie,
    with_rows,
)
from regard.text.template import Template

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}
BASE = 10_000  # of sinusoids
PROJECTIONS = {"queries": "q_proj", "keys": "k_proj", "values": "v_proj", "out": "out_proj"}


def halved_sinusoids(count: int, width: int, pad: int) -> Tensor:
    """Sines, then cosines (Marian, Pegasus), computed in float64 as there."""
    column = np.arange(width)
    angles = np.arange(count)[:, None] / np.power(BASE, 2 * (column // 2) / width)
    table = np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], 1)
    return torch.from_numpy(table.astype(np.float32))


def offset_sinusoids(count: int, width: int, pad: int) -> Tensor:
    """Sines, then cosines from the position after `pad` on (M2M100, FSMT), in float32 as there."""
    half = width // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(BASE) / (half - 1)))
    angles = torch.arange(pad + 1, pad + 1 + count).float()[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], 1)
    return torch.nn.functional.pad(table, (0, width - 2 * half))


@dataclass(frozen=True)
class BartShape:
    """How a family of checkpoints differs from BART.

    `position_offset` rows at the beginning of a learned table are not positions. Without
    `sinusoids`, positions are learned. Prefix and suffix of a source are names of special tokens in
    the configuration.
    """

    defaults: dict[str, Any]
    pre_norm: bool = False
    embedding_norm: bool = False
    position_offset: int = 0
    sinusoids: Callable[[int, int, int], Tensor] | None = None
    prefix: str = "model."
    output: str = "lm_head.weight"
    two_vocabularies: bool = False
    source_prefix: tuple[str, ...] = ()
    source_suffix: tuple[str, ...] = ("eos_token_id",)

    def __call__(self, config: CheckpointConfig, tensors: CheckpointTensors) -> ConvertedCheckpoint:
        config = config.with_defaults(self.defaults)
        width, heads = config.width("d_model"), config.width("encoder_attention_heads")
        if config.width("decoder_attention_heads") != heads:
            raise config.folder.error(
                "encoder and decoder have different numbers of heads", "this cannot be represented"
            )
        if width % heads:
            raise config.error("encoder_attention_heads", f"must divide {width}", heads)
        layers = {
            side: config.integer(f"{side}_layers", 1, MAX_LAYERS) for side in ("encoder", "decoder")
        }
        ffn = max(config.width(f"{side}_ffn_dim") for side in layers)
        sizes = self._sizes(config)
        positions = config.integer("max_position_embeddings", 1, MAX_POSITIONS)
        pad = config.integer("pad_token_id", 0, min(sizes) - 1)
        tied, weights = tie(*self._tables(tensors, width, sizes))
        for side, end in (("encoder", "source"), ("decoder", "target")):
            weights |= self._positions(tensors, side, end, positions, width, pad)
            stack = f"{self.prefix}{side}"
            if self.embedding_norm:
                weights |= tensors.norm(f"{stack}.layernorm_embedding", f"{end}.norm", width)
            if self.pre_norm:
                weights |= tensors.norm(f"{stack}.layer_norm", f"{side}_norm", width)
            inner = config.width(f"{side}_ffn_dim")
            for layer in range(layers[side]):
                names = f"{stack}.layers.{layer}", f"{side}.{layer}"
                weights |= _layer(tensors, *names, width, inner, ffn, side)
        bias = self._output_bias(tensors, sizes[1])
        weights |= bias
        tensors.check_all_used()
        settings: dict[str, Any] = {
            "kind": "transformer",
            "width": width,
            "heads": heads,
            "encoder_layers": layers["encoder"],
            "decoder_layers": layers["decoder"],
            "ffn_width": ffn,
            "position": {"kind": "learned", "max_length": positions},
            "norm_order": "pre" if self.pre_norm else "post",
            "activation": config.choice("activation_function", ACTIVATIONS),
            "embedding_norm": self.embedding_norm,
            "embedding_scale": None if config.flag("scale_embedding") else 1.0,
            "output_bias": bool(bias),
            "dropout": config.number("dropout", 0, 0.99),
            "tie_embeddings": tied,
        }
        return ConvertedCheckpoint(settings, weights, sizes, self._template(config, sizes))

    def _sizes(self, config: CheckpointConfig) -> tuple[int, int]:
        names = ("vocab_size", "vocab_size")
        if self.two_vocabularies:  # FSMT
            names = ("src_vocab_size", "tgt_vocab_size")
        elif config.get("share_encoder_decoder_embeddings") is False:  # Marian
            names = ("vocab_size", "decoder_vocab_size")
        source, target = (config.integer(name, 3, MAX_VOCABULARY) for name in names)
        return source, target

    def _tables(
        self, tensors: CheckpointTensors, width: int, sizes: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The tables of source, target and output; missing ones are shared."""
        shared = f"{self.prefix}shared.weight"
        encoder, decoder = (
            f"{self.prefix}{side}.embed_tokens.weight" for side in ("encoder", "decoder")
        )
        source = tensors.read_first([encoder, shared, decoder, self.output], sizes[0], width)
        target = tensors.read_first([decoder, shared, self.output], sizes[1], width)
        output = tensors.read_first([self.output, decoder, shared], sizes[1], width)
        return source, target, output

    def _positions(
        self, tensors: CheckpointTensors, side: str, end: str, count: int, width: int, pad: int
    ) -> Weights:
        name, out = f"{self.prefix}{side}.embed_positions.weight", f"{end}.position.table"
        skipped = pad + 1 if self.sinusoids is offset_sinusoids else self.position_offset
        tensors.ignore(f"{name}s")  # sinusoids that old versions stored
        if self.sinusoids is not None and name not in tensors:
            return {out: self.sinusoids(count, width, pad)}
        return {out: tensors.read(name, count + skipped, width)[skipped:].clone()}

    def _output_bias(self, tensors: CheckpointTensors, size: int) -> Weights:
        if "final_logits_bias" not in tensors:
            return {}
        bias = tensors.read("final_logits_bias", 1, size)[0]
        return {"output.bias": bias} if bias.any() else {}

    def _template(self, config: CheckpointConfig, sizes: tuple[int, int]) -> Template:
        source, target = sizes
        end = config.token("eos_token_id", target)
        start = config.token("decoder_start_token_id", target, optional=True)
        forced = config.token("forced_bos_token_id", target, optional=True)
        pad = config.token("pad_token_id", target, optional=True)
        assert end is not None
        around = [
            tuple(
                id
                for name in names
                if (id := config.token(name, source, optional=True)) is not None
            )
            for names in (self.source_prefix, self.source_suffix)
        ]
        first = start if start is not None else config.token("bos_token_id", target)
        banned = {*config.single_tokens(target), *([] if pad is None else [pad])} - {end}
        return Template(
            end=end,
            start=tuple(id for id in (first, forced) if id is not None),
            source_prefix=around[0],
            source_suffix=around[1],
            banned=tuple(sorted(banned)),
        )


def _layer(
    tensors: CheckpointTensors,
    name: str,
    out: str,
    width: int,
    inner: int,
    ffn: int,
    side: str,
) -> Weights:
    """A layer of the encoder or the decoder."""
    attentions = {"self_attention": "self_attn"}
    norms = ["self_attn_layer_norm", "final_layer_norm"]
    if side == "decoder":
        attentions["cross_attention"] = "encoder_attn"
        norms.insert(1, "encoder_attn_layer_norm")
    weights: Weights = {}
    linear = partial(tensors.linear, columns=width)
    for attention, theirs in attentions.items():
        for role, projection in PROJECTIONS.items():
            place = f"{name}.{theirs}.{projection}"
            weights |= linear(place, f"{out}.{attention}.{role}", width)
    for number, norm in enumerate(norms, 1):
        weights |= tensors.norm(f"{name}.{norm}", f"{out}.residual{number}.norm", width)
    first = linear(f"{name}.fc1", f"{out}.feed_forward.inner", inner)
    weights |= {key: with_rows(tensor, ffn) for key, tensor in first.items()}
    second = tensors.linear(f"{name}.fc2", f"{out}.feed_forward.outer", width, inner)
    matrix = f"{out}.feed_forward.outer.weight"
    second[matrix] = with_rows(second[matrix].T, ffn).T.contiguous()
    return weights | second


def _defaults(**changes: Any) -> dict[str, Any]:
    """The values that a configuration may leave out."""
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 12), ("ffn_dim", 4096), ("attention_heads", 16))
    }
    common = {"d_model": 1024, "dropout": 0.1, "max_position_embeddings": 1024}
    tokens = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    other = {"activation_function": "gelu", "scale_embedding": False, "vocab_size": 50265}
    return {**sides, **common, **tokens, **other, **changes}


MARIAN = BartShape(
    _defaults(vocab_size=58101, pad_token_id=58100, eos_token_id=0, decoder_start_token_id=58100),
    sinusoids=halved_sinusoids,
)
BART = BartShape(
    _defaults(decoder_start_token_id=2),
    embedding_norm=True,
    position_offset=2,
    source_prefix=("bos_token_id",),
)
MBART = BartShape(_defaults(), pre_norm=True, embedding_norm=True, position_offset=2)
M2M100 = BartShape(
    _defaults(
        vocab_size=128112,
        activation_function="relu",
        decoder_start_token_id=2,
        scale_embedding=True,
    ),
    pre_norm=True,
    sinusoids=offset_sinusoids,
)
PEGASUS = BartShape(
    _defaults(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, bos_token_id=None),
    pre_norm=True,
    sinusoids=halved_sinusoids,
)
BLENDERBOT = BartShape(
    _defaults(
        vocab_size=8008,
        d_model=2560,
        max_position_embeddings=128,
        encoder_layers=2,
        decoder_layers=24,
        encoder_ffn_dim=10240,
        decoder_ffn_dim=10240,
        encoder_attention_heads=32,
        decoder_attention_heads=32,
        pad_token_id=0,
        bos_token_id=1,
        decoder_start_token_id=1,
    ),
    pre_norm=True,
)
FSMT = BartShape(
    _defaults(
        src_vocab_size=42024,
        tgt_vocab_size=42024,
        activation_function="relu",
        scale_embedding=True,
        decoder_start_token_id=2,
    ),
    sinusoids=offset_sinusoids,
    output="model.decoder.output_projection.weight",
    two_vocabularies=True,
)
