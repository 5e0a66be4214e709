"""Write a Transformer as a folder that CTranslate2 reads.

CTranslate2 has sinusoidal, learned, rotary, Shaw and T5 positions. What it lacks is folded into
what it has (`regard.hub.folding`).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.normalisers import Softmax
from regard.attention.scores import Dot, General, ScaledDot
from regard.bundle import Bundle
from regard.errors import RegardError
from regard.hub.folding import LONGEST, distance_table, fold_queries, rotary_scaling
from regard.models.families import (
    AttentionDescription,
    LayerDescription,
    describe,
    unknown_part,
)
from regard.models.layers import GATED
from regard.positions import T5, Alibi, Distance, Learned, NoPosition, Rotary, Shaw, Sinusoidal
from regard.text.tokenizers import Tokenizer

SCORES = (ScaledDot, Dot, General)
POSITIONS = (NoPosition, Sinusoidal, Learned, Rotary, Alibi, Distance, T5, Shaw)
BIASES = (Alibi, Distance, T5)
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu-tanh": "GELUTanh",
    "silu": "SWISH",
}
MISSING = 'CTranslate2 is not installed; install it with pip install "regard[ctranslate2]"'


def require_ctranslate2() -> Any:
    """The library; raises if it is not installed."""
    if find_spec("ctranslate2") is None:
        raise RegardError(MISSING)
    return import_module("ctranslate2")  # it has no types


def cannot_export(model: Any) -> str | None:
    """Why CTranslate2 cannot run a model, by the name of the setting; None if it can."""
    if reason := unknown_part(model):
        kind = type(model).__name__
        return (
            f"model.kind must be transformer, not {kind.lower()}" if "family" in reason else reason
        )
    layers = [*model.encoder, *model.decoder]
    for layer in map(describe, layers):
        for attention in filter(None, (layer.self_attention, layer.cross_attention)):
            parts, rotation = attention.parts, attention.rotation
            if type(parts.score) not in SCORES:
                return f"it has no model.score = {_name(model.settings.score)!r}"
            if type(parts.normaliser) is not Softmax:
                return f"it has no model.normaliser = {_name(model.settings.normaliser)!r}"
            position = rotation or parts.bias
            if position is not None and type(position) not in POSITIONS:
                return f"it has no model.position = {_name(model.settings.position)!r}"
            is_general = type(parts.score) is General
            if is_general and type(position) in (Rotary, Shaw):
                name = _name(model.settings.position)
                return f"model.score = 'general' cannot be folded with model.position = {name!r}"
    added = model.source.position
    if added is not None and type(added) not in POSITIONS:
        return f"it has no model.position = {_name(model.settings.position)!r}"
    if model.settings.window is not None and not _has_table(model):
        name = _name(model.settings.position)
        return f"it has no model.window with model.position = {name!r}"
    return None


def write_ctranslate2(bundle: Bundle, folder: Path, *, int8: bool = False) -> int | None:
    """Write the model of a bundle; returns the maximum tokens of a side (None: no limit)."""
    require_ctranslate2()
    model: Any = bundle.model
    if reason := cannot_export(model):
        raise RegardError(f"CTranslate2 cannot run this model: {reason}; keep using Regard for it")
    spec = _empty_spec(model)
    sides = (
        (model.source, model.encoder, model.encoder_norm),
        (
            model.target,
            model.decoder,
            model.decoder_norm,
        ),
    )
    for stack, (embedding, layers, norm) in zip((spec.encoder, spec.decoder), sides, strict=True):
        _fill_stack(stack, model, embedding, [describe(layer) for layer in layers], norm)
    spec.decoder.projection.weight = _array(model.output.table)
    if model.output.bias is not None:
        spec.decoder.projection.bias = _array(model.output.bias)
    source, target = tokens(bundle.source), tokens(bundle.target)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    config, template = spec.config, bundle.template
    config.unk_token, config.bos_token, config.eos_token = (
        target[special] for special in (template.unknown, template.start[0], template.end)
    )
    config.decoder_start_token = target[template.start[0]]
    config.add_source_eos = adds_source_end(bundle)
    first: Any = describe(model.encoder[0])
    config.layer_norm_epsilon = first.norms[0].eps
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    if isinstance(model.source.position, Learned):
        return model.source.position.max_length
    attention = first.self_attention
    limited = attention.rotation is None and type(attention.parts.bias) is not Shaw
    return LONGEST if limited or _has_table(model) else None


def adds_source_end(bundle: Bundle) -> bool:
    """Whether CTranslate2 itself adds the special tokens of a source: its end token alone."""
    template, names = bundle.template, (bundle.source.token, bundle.target.token)
    if template.source_prefix or len(template.source_suffix) != 1:
        return False
    return names[0](template.source_suffix[0]) == names[1](template.end)


def tokens(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary as strings, in the order of their ids."""
    names = [tokenizer.token(id) for id in range(len(tokenizer))]
    if len(set(names)) != len(names):
        raise RegardError(
            "two tokens of the vocabulary have the same name; CTranslate2 needs names"
        )
    return names


def _has_table(model: Any) -> bool:
    """Whether self-attention has a bias by distance: of its position encoding or its window."""
    attention = describe(model.encoder[0]).self_attention
    bias, windowed = attention.parts.bias, model.settings.window is not None
    plain = bias is None and model.source.position is None and attention.rotation is None
    return type(bias) in BIASES or plain or (windowed and attention.rotation is not None)


def _empty_spec(model: Any) -> Any:
    """The specification of a model without weights."""
    attention_spec, common_spec, transformer_spec = (
        import_module(f"ctranslate2.specs.{name}")
        for name in ("attention_spec", "common_spec", "transformer_spec")
    )
    layer = describe(model.encoder[0])
    attention, activation = layer.self_attention, layer.feed_forward.activation
    heads, groups = attention.projections.heads, attention.projections.kv_heads
    function = ACTIVATIONS[GATED.get(activation, activation)]
    options: dict[str, Any] = {
        "pre_norm": layer.pre_norm,
        "activation": getattr(common_spec.Activation, function),
        "ffn_glu": activation in GATED,
        "layernorm_embedding": model.source.norm is not None,
        "head_dim": attention.projections.dim,
        "rms_norm": isinstance(layer.norms[0], nn.RMSNorm),
        "relative_position": type(attention.parts.bias) is Shaw,
        "relative_attention_bias": _has_table(model),
        "num_heads_kv": None if groups == heads else groups,
    }
    rotation = attention.rotation
    if rotation is not None:
        # θ_i = base^(−i / dims) / factor: both follow from the first two frequencies.
        factor, base = rotary_scaling(rotation)
        options |= {
            "rotary_dim": rotation.rotated_dims,
            "rotary_interleave": rotation.pairs == "neighbours",
            "rotary_base": base,
        }
        if factor != 1:
            options |= {
                "rotary_scaling_type": attention_spec.RotaryScalingType.Linear,
                "rotary_scaling_factor": factor,
            }
    return transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(len(model.encoder), heads, **options),
        transformer_spec.TransformerDecoderSpec(len(model.decoder), heads, **options),
    )


def _fill_stack(
    stack: Any, model: Any, embedding: Any, layers: list[LayerDescription], norm: nn.Module
) -> None:
    is_encoder = isinstance(stack.embeddings, list)
    (stack.embeddings[0] if is_encoder else stack.embeddings).weight = _array(embedding.table)
    stack.scale_embeddings = np.float32(embedding.scale)
    if embedding.norm is not None:
        _fill_norm(stack.layernorm_embedding, embedding.norm)
    added, has_table = embedding.position, _has_table(model)
    if "position_encodings" in vars(stack):
        count = added.max_length if isinstance(added, Learned) else LONGEST
        rotates = layers[0].self_attention.rotation is not None
        places = torch.arange(1 if rotates else count)
        stack.position_encodings.encodings = _array(
            torch.zeros(len(places), model.settings.width) if added is None else added(places)
        )
    if layers[0].pre_norm:
        _fill_norm(stack.layer_norm, norm)
    for spec, layer in zip(stack.layer, layers, strict=True):
        own = layer.self_attention
        _fill_linear(spec.self_attention.linear[0], fold_queries(own), *_keys_values(own))
        _fill_linear(spec.self_attention.linear[1], own.projections.out)
        _fill_scale(spec.self_attention, own)
        _fill_norm(spec.self_attention.layer_norm, layer.norms[0])
        if has_table:
            table = distance_table(own, two_sided=is_encoder)
            spec.self_attention.relative_attention_bias = table
            spec.self_attention.relative_attention_max_distance = np.int32(2 * LONGEST)
        elif isinstance(own.parts.bias, Shaw):
            shaw = own.parts.bias
            keys = _array(shaw.table * (shaw.scale if type(own.parts.score) is Dot else 1.0))
            spec.self_attention.relative_position_keys = keys
            spec.self_attention.relative_position_values = np.zeros_like(keys)
        if layer.cross_attention is not None:
            cross = layer.cross_attention
            _fill_linear(spec.attention.linear[0], fold_queries(cross))
            _fill_linear(spec.attention.linear[1], *_keys_values(cross))
            _fill_linear(spec.attention.linear[2], cross.projections.out)
            _fill_scale(spec.attention, cross)
            _fill_norm(spec.attention.layer_norm, layer.norms[1])
        _fill_norm(spec.ffn.layer_norm, layer.norms[-1])
        _fill_feed_forward(spec.ffn, layer.feed_forward)


def _keys_values(attention: AttentionDescription) -> tuple[nn.Linear, nn.Linear]:
    return attention.projections.keys, attention.projections.values


def _fill_scale(spec: Any, attention: AttentionDescription) -> None:
    """The factor of q · k: 1 / √dim unless it is set."""
    if type(attention.parts.score) is not ScaledDot:
        spec.queries_scale = np.float32(1)


def _fill_linear(spec: Any, *projections: nn.Linear) -> None:
    """One linear layer with the outputs of several."""
    spec.weight = np.concatenate([_array(one.weight) for one in projections])
    if projections[0].bias is not None:
        spec.bias = np.concatenate([_array(one.bias) for one in projections])


def _fill_feed_forward(spec: Any, part: Any) -> None:
    if part.activation not in GATED:
        _fill_linear(spec.linear_0, part.inner)
    else:
        for half, linear in enumerate((spec.linear_0, spec.linear_0_noact)):
            linear.weight = _array(part.inner.weight.chunk(2)[half])
            if part.inner.bias is not None:
                linear.bias = _array(part.inner.bias.chunk(2)[half])
    _fill_linear(spec.linear_1, part.outer)


def _fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    """A copy: CTranslate2 quantises arrays in place, and these would be those of the model."""
    return tensor.detach().float().cpu().contiguous().numpy().copy()


def _name(part: Any) -> str:
    return part if isinstance(part, str) else str(part.get("kind"))
