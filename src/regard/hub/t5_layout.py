"""Models as T5: RMS norms, no biases, and a bias of scores by distance.

T5 does not scale its dot products, so 1/√dim is folded into the queries. ALiBi, learned distances
and windows become buckets with one distance each.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.bundle import Bundle
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
)
from regard.hub.checkpoint_tensors import with_rows
from regard.hub.folding import LONGEST, distance_table
from regard.models.families import LayerDescription, describe
from regard.positions import T5

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu-tanh": "gelu_new",
    "silu": "silu",
    "geglu": "gated-gelu",
    "swiglu": "gated-silu",
}
ROLES = {"queries": "q", "keys": "k", "values": "v", "out": "o"}
RULES: list[Rule] = [
    ("norm", *one_of("rms")),
    ("norm_order", *one_of("pre")),
    ("biases", *one_of(False)),
    ("position", *one_of("t5", "distance", "alibi", "none")),
    ("embedding_norm", *one_of(False)),
    ("output_bias", *one_of(False)),
    *SHARED_RULES,
]


class T5Layout:
    """T5 1.1, or T5 1.0 where all tables are one."""

    name: str = "T5"

    def unmet(self, bundle: Bundle) -> list[Requirement]:
        """The settings that it cannot represent."""
        found = [*unmet_rules(bundle.settings, RULES), *unmet_template(bundle)]
        sizes = len(bundle.source), len(bundle.target)
        if sizes[0] > sizes[1]:  # T5 has one size, and no bias that excludes ids from outputs
            found.append(Requirement("text.shared_vocabulary", False, "True"))
        return found

    def convert(self, bundle: Bundle) -> HFCheckpoint:
        """The configuration and the weights."""
        model, settings = _model(bundle), bundle.settings
        config, tensors = _tables(model)
        longest = None
        for side, layers, norm in (
            ("encoder", model.encoder, model.encoder_norm),
            ("decoder", model.decoder, model.decoder_norm),
        ):
            described = [describe(layer) for layer in layers]
            table, buckets, distance = _bias(described[0], two_sided=side == "encoder")
            longest = None if distance < LONGEST else LONGEST
            config |= {
                "relative_attention_num_buckets": buckets,
                "relative_attention_max_distance": distance,
            }
            first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            tensors[first] = table
            for index, layer in enumerate(described):
                tensors |= _layer(f"{side}.block.{index}.layer", layer)
            tensors[f"{side}.final_layer_norm.weight"] = norm.weight.detach()
        attention = model.encoder[0].self_attention
        assert settings.kind == "transformer"
        config |= {
            "architectures": ["T5ForConditionalGeneration"],
            "model_type": "t5",
            "d_model": settings.width,
            "d_kv": attention.dim,
            "d_ff": settings.ffn_width,
            "num_heads": attention.heads,
            "num_layers": len(model.encoder),
            "num_decoder_layers": len(model.decoder),
            "feed_forward_proj": ACTIVATIONS[settings.activation],
            "layer_norm_epsilon": model.encoder_norm.eps,
            "dropout_rate": settings.dropout,
            "is_encoder_decoder": True,
            **special_token_ids(bundle),
        }
        return HFCheckpoint(config, tensors, longest)


def _model(bundle: Bundle) -> Any:
    return bundle.model


def _tables(model: Any) -> tuple[dict[str, Any], Tensors]:
    """Token and output tables. One shared table has T5 1.0's factor √width, undone by its output.

    Otherwise the embedding's factor is folded into the token tables.
    """
    source, target = model.source, model.target
    rows, width = len(target.table), model.settings.width
    tied = model.settings.tie_embeddings == "all" and source.scale == math.sqrt(width)
    config = {"vocab_size": rows, "tie_word_embeddings": tied}
    inputs, outputs = (
        with_rows(side.table.detach(), rows) * side.scale for side in (source, target)
    )
    if tied:
        return config, {"shared.weight": inputs}
    tensors = {"shared.weight": outputs, "lm_head.weight": model.output.table.detach()}
    if not torch.equal(inputs, outputs):
        tensors["encoder.embed_tokens.weight"] = inputs
        tensors["decoder.embed_tokens.weight"] = outputs.clone()
    return config, tensors


def _bias(layer: LayerDescription, *, two_sided: bool) -> tuple[Tensor, int, int]:
    """The table (bucket, head) of a stack, its buckets and its maximum distance."""
    attention = layer.self_attention
    bias: Any = attention.parts.bias
    windowed = attention.mask.bounds()
    if type(bias) is T5 and windowed is not None and windowed.low is None:
        return bias.table.detach().T, bias.buckets, bias.max_distance
    buckets = 4 * LONGEST  # of which a decoder uses the first half
    table = torch.from_numpy(distance_table(attention, two_sided=two_sided))
    return with_rows(table, buckets), buckets, 2 * LONGEST


def _layer(name: str, layer: LayerDescription) -> Tensors:
    tensors: Tensors = {}
    attentions = {"0.SelfAttention": layer.self_attention}
    if layer.cross_attention is not None:
        attentions["1.EncDecAttention"] = layer.cross_attention
    for theirs, attention in attentions.items():
        for role, (weight, _) in projections(attention, 1.0).items():
            tensors[f"{name}.{theirs}.{ROLES[role]}.weight"] = weight
    for index, norm in enumerate(layer.norms):
        scale = norm.weight
        assert isinstance(scale, Tensor)
        tensors[f"{name}.{index}.layer_norm.weight"] = scale.detach()
    dense, part = f"{name}.{len(attentions)}.DenseReluDense", layer.feed_forward
    inner = part.inner.weight.detach()
    if ACTIVATIONS[part.activation].startswith("gated"):
        halves = inner.chunk(2)
        tensors |= {f"{dense}.wi_{i}.weight": half for i, half in enumerate(halves)}
    else:
        tensors[f"{dense}.wi.weight"] = inner
    return tensors | {f"{dense}.wo.weight": part.outer.weight.detach()}
