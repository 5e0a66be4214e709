"""Models as Blenderbot, mBART, BART or Marian: layer norms, biases and positions that are added.

They differ in the order of norms and in their positions. Marian computes sinusoids, all sines
before all cosines: the channels of a model with interleaved ones are permuted everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.hub.bart_checkpoint import BASE, halved_sinusoids
from regard.hub.checkpoint_layout import (
    SHARED_RULES,
    HFCheckpoint,
    Requirement,
    Rule,
    Tensors,
    one_of,
    projections,
    special_token_ids,
    unmet_rules,
    unmet_template,
    weight_and_bias,
)
from regard.hub.checkpoint_tensors import with_rows
from regard.hub.folding import LONGEST
from regard.models.families import LayerDescription, describe
from regard.positions import Learned, Sinusoidal

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "silu"}
ROLES = {"queries": "q_proj", "keys": "k_proj", "values": "v_proj", "out": "out_proj"}
NEVER = -1e9  # the logit of ids that only the other side has


@dataclass(frozen=True)
class BartLayout:
    """One of the four classes. Learned position tables begin with `offset` unused rows."""

    name: str
    model_type: str
    architecture: str
    pre_norm: bool
    embedding_norm: bool = False
    offset: int = 0
    sinusoidal: bool = False

    def unmet(self, bundle: Bundle) -> list[Requirement]:
        """The settings that it cannot represent."""
        settings, model = _settings_and_model(bundle)
        added = ("sinusoidal",) if self.sinusoidal else ("learned", "sinusoidal", "none")
        rules: list[Rule] = [
            ("norm_order", *one_of("pre" if self.pre_norm else "post")),
            ("embedding_norm", *one_of(self.embedding_norm)),
            ("position", *one_of(*added)),
            ("activation", *one_of(*ACTIVATIONS)),
            ("norm", *one_of("layer")),
            ("norm_eps", *one_of(None, 1e-5)),
            ("dim", *one_of(None, settings.width // settings.heads)),
            ("window", *one_of(None)),
            *SHARED_RULES,
        ]
        if self.sinusoidal and _is_marian_table(model):
            rules = [rule for rule in rules if rule[0] != "position"]
        found = [*unmet_rules(settings, rules), *unmet_template(bundle)]
        position = model.source.position
        if self.sinusoidal and isinstance(position, Sinusoidal) and position.base != BASE:
            found.append(Requirement("model.position.base", position.base, str(BASE)))
        return found

    def convert(self, bundle: Bundle) -> HFCheckpoint:
        """The configuration and the weights."""
        settings, model = _settings_and_model(bundle)
        order = self._channels(model)
        config, tensors = self._tables(bundle, order)
        longest, units = LONGEST, {}
        for side, embedding, layers, norm in (
            ("encoder", model.source, model.encoder, model.encoder_norm),
            ("decoder", model.target, model.decoder, model.decoder_norm),
        ):
            stack, units[side] = f"model.{side}", _used_units(layers)
            if isinstance(embedding.position, Learned):
                longest = embedding.position.max_length
            if not self.sinusoidal:
                table = _position_table(embedding, longest)
                padded = torch.cat([table.new_zeros(self.offset, table.shape[1]), table])
                tensors[f"{stack}.embed_positions.weight"] = padded
            if self.embedding_norm:
                tensors |= _norm(f"{stack}.layernorm_embedding", embedding.norm, order)
            if self.pre_norm:
                tensors |= _norm(f"{stack}.layer_norm", norm, order)
            for index, layer in enumerate(layers):
                tensors |= _layer(f"{stack}.layers.{index}", describe(layer), order, units[side])
        config |= {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "d_model": settings.width,
            **{
                f"{side}_layers": len(stack)
                for side, stack in (("encoder", model.encoder), ("decoder", model.decoder))
            },
            **{f"{side}_attention_heads": settings.heads for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": count for side, count in units.items()},
            "activation_function": ACTIVATIONS[settings.activation],
            "dropout": settings.dropout,
            "max_position_embeddings": longest,
            "is_encoder_decoder": True,
            "encoder_no_repeat_ngram_size": 0,
            **special_token_ids(bundle),
        }
        return HFCheckpoint(config, tensors, longest)

    def _channels(self, model: Any) -> Tensor:
        """The model's channel for each channel of the checkpoint."""
        width, position = model.settings.width, model.source.position
        if self.sinusoidal and isinstance(position, Sinusoidal) and position.order == "paired":
            return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
        return torch.arange(width)

    def _tables(self, bundle: Bundle, order: Tensor) -> tuple[dict[str, Any], Tensors]:
        """Token tables, output table and bias, shared as the layout shares them."""
        model: Any = bundle.model
        source, target = model.source, model.target
        width, scale = model.settings.width, source.scale
        tie, sizes = model.settings.tie_embeddings, (len(source.table), len(target.table))
        scaled = scale == math.sqrt(width)
        factor = 1.0 if scaled or scale == 1 else scale  # any other is folded into the tables
        tied = tie == "all" and factor == 1
        config: dict[str, Any] = {"scale_embedding": scaled, "tie_word_embeddings": tied}
        two_sizes = self.sinusoidal and not tied
        rows = sizes if two_sizes else (max(sizes), max(sizes))
        config["vocab_size"] = rows[0]
        if self.sinusoidal:
            config |= {"decoder_vocab_size": rows[1], "share_encoder_decoder_embeddings": tied}
        inputs, outputs, output = (
            with_rows(table.detach()[:, order], count) * amount
            for table, count, amount in (
                (source.table, rows[0], factor),
                (target.table, rows[1], factor),
                (model.output.table, rows[1], 1.0),
            )
        )
        bias = torch.full((1, rows[1]), NEVER)
        bias[0, : sizes[1]] = 0 if model.output.bias is None else model.output.bias.detach()
        tensors = {"final_logits_bias": bias}
        if tied:
            return config, tensors | {"model.shared.weight": inputs}
        tensors |= {"model.encoder.embed_tokens.weight": inputs, "lm_head.weight": output}
        tensors["model.decoder.embed_tokens.weight"] = outputs
        if not self.sinusoidal:
            tensors["model.shared.weight"] = outputs.clone()
        return config, tensors


def _settings_and_model(bundle: Bundle) -> tuple[Any, Any]:
    """Those of a Transformer."""
    return bundle.settings, bundle.model


def _position_table(embedding: Any, count: int) -> Tensor:
    """The vectors that are added at the first positions."""
    if embedding.position is None:
        return torch.zeros(count, embedding.table.shape[1])
    table: Tensor = embedding.position(torch.arange(count)).detach()
    return table


def _is_marian_table(model: Any) -> bool:
    """Whether learned positions are exactly what Marian computes: those of an imported Marian."""
    tables = [side.position for side in (model.source, model.target)]
    if not all(isinstance(table, Learned) for table in tables):
        return False
    sizes = [(*table.table.shape, 0) for table in tables]
    return all(
        torch.equal(table.table.detach(), halved_sinusoids(*size))
        for table, size in zip(tables, sizes, strict=True)
    )


def _used_units(layers: Any) -> int:
    """How many feed-forward units a stack uses: an import fills up those of the smaller one."""
    outer = torch.stack([layer.feed_forward.outer.weight.detach() for layer in layers])
    used = outer.abs().amax((0, 1)).nonzero()
    return int(used.max()) + 1 if len(used) else 1


def _layer(name: str, layer: LayerDescription, order: Tensor, units: int) -> Tensors:
    tensors: Tensors = {}
    attentions = {"self_attn": layer.self_attention}
    norms = ["self_attn_layer_norm", "final_layer_norm"]
    if layer.cross_attention is not None:
        attentions["encoder_attn"] = layer.cross_attention
        norms.insert(1, "encoder_attn_layer_norm")
    for theirs, attention in attentions.items():
        scale = 1 / math.sqrt(attention.projections.dim)
        for role, (weight, bias) in projections(attention, scale).items():
            into = role == "out"  # writes to the residual stream, whose channels are permuted
            tensors |= {
                f"{name}.{theirs}.{ROLES[role]}.weight": weight[order]
                if into
                else weight[:, order],
                f"{name}.{theirs}.{ROLES[role]}.bias": bias[order] if into else bias,
            }
    for theirs, norm in zip(norms, layer.norms, strict=True):
        tensors |= _norm(f"{name}.{theirs}", norm, order)
    inner, outer = (
        weight_and_bias(part) for part in (layer.feed_forward.inner, layer.feed_forward.outer)
    )
    return tensors | {
        f"{name}.fc1.weight": inner[0][:units, order],
        f"{name}.fc1.bias": inner[1][:units],
        f"{name}.fc2.weight": outer[0][order, :units],
        f"{name}.fc2.bias": outer[1][order],
    }


def _norm(name: str, norm: nn.Module, order: Tensor) -> Tensors:
    assert isinstance(norm, nn.LayerNorm)
    parts = {"weight": norm.weight.detach()[order], "bias": norm.bias.detach()[order]}
    return {f"{name}.{part}": tensor for part, tensor in parts.items()}


BART_LAYOUTS = [
    BartLayout("Blenderbot", "blenderbot", "BlenderbotForConditionalGeneration", True),
    BartLayout("mBART", "mbart", "MBartForConditionalGeneration", True, True, 2),
    BartLayout("BART", "bart", "BartForConditionalGeneration", False, True, 2),
    BartLayout("Marian", "marian", "MarianMTModel", False, sinusoidal=True),
]
