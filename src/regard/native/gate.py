"""The gate of the native engine: which models it runs, decided from their settings.

The settings are plain values that nothing has validated: a missing, unknown or odd one is refused,
and torch then reports what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

POSITION_OPTIONS: dict[str, set[str]] = {
    "none": set(),
    "sinusoidal": {"base", "order"},
    "learned": {"max_length"},
    "rotary": {"base", "fraction", "pairs", "scaling", "factor"},
    "alibi": set(),
    "distance": {"max_distance"},
    "t5": {"buckets", "max_distance"},
    "shaw": {"max_distance"},
}
TRANSFORMER_SCORES = ("scaled-dot", "dot")
RECURRENT_SCORES = ("additive", "dot", "scaled-dot", "general")
# Settings that older bundles do not store: their values there.
DEFAULTS: dict[str, Any] = {
    "dim": None,
    "norm_eps": None,
    "biases": True,
    "embedding_scale": None,
    "embedding_norm": False,
    "output_bias": False,
}
# Every setting that changes what a model computes, by family; dropout does not.
SIZES = ("width", "encoder_layers", "decoder_layers")
SETTINGS: dict[str, set[str]] = {
    "transformer": {
        *("kind", "heads", "kv_heads", "ffn_width", "position", "score", "normaliser", "window"),
        *("norm", "norm_order", "activation", "dropout", "tie_embeddings", "attention_backend"),
        *DEFAULTS,
        *SIZES,
    },
    "recurrent": {
        *("kind", "cell", "attention", "score", "normaliser", "dropout", "tie_embeddings"),
        *SIZES,
    },
}
COUNTS = {"heads", "ffn_width", *SIZES}
OPTIONAL_COUNTS = {"kv_heads", "window", "dim"}
SWITCHES = {"biases", "embedding_norm", "output_bias"}
OPTIONAL_NUMBERS = {"norm_eps", "embedding_scale"}
CHOICES: dict[str, tuple[str, ...]] = {
    "norm": ("layer", "rms"),
    "norm_order": ("pre", "post"),
    "activation": ("relu", "gelu", "swiglu", "gelu-tanh", "silu", "geglu"),
    "tie_embeddings": ("none", "target", "all", "inputs"),
    "cell": ("gru", "lstm"),
    "attention": ("none", "bahdanau", "luong"),
}


def cannot(settings: Mapping[str, Any]) -> str | None:
    """Why the engine cannot run a model with these settings; None if it can."""
    family = settings.get("kind")
    if family not in SETTINGS:
        return f"it runs transformer and recurrent models, not model.kind = {family!r}"
    settings = with_defaults(settings)
    if odd := settings.keys() ^ SETTINGS[family]:
        return f"model.{min(odd)} is {'unknown' if min(odd) in settings else 'missing'}"
    for name in settings.keys() & (COUNTS | OPTIONAL_COUNTS):
        value = settings[name]
        if name in OPTIONAL_COUNTS and value is None:
            continue
        if not isinstance(value, int) or value < 1:
            return f"it does not know model.{name} = {value!r}"
    for name, known in CHOICES.items():
        if name in settings and settings[name] not in known:  # compares, and so takes any value
            return f"it does not know model.{name} = {settings[name]!r}"
    if reason := _unsupported_value(settings):
        return reason
    scores = TRANSFORMER_SCORES if family == "transformer" else RECURRENT_SCORES
    attends = family == "transformer" or settings["attention"] != "none"
    parts = [("score", scores), ("normaliser", ("softmax",))] if attends else []
    for name, supported in parts:
        kind, options = split_part(settings[name])
        if kind not in supported:
            return f"it supports model.{name} = {' or '.join(supported)}, not {kind!r}"
        if options:
            return f"it does not know the option {min(options)!r} of model.{name} = {kind!r}"
    if family == "transformer":
        kind, options = split_part(settings["position"])
        if kind not in POSITION_OPTIONS:
            return f"it does not know model.position = {kind!r}"
        if unknown := options.keys() - POSITION_OPTIONS[kind]:
            return f"it does not know the option {min(unknown)!r} of model.position = {kind!r}"
        if (backend := settings.get("attention_backend", "auto")) != "auto":
            return f"model.attention_backend = {backend!r} asks for another backend"
    return None


def _unsupported_value(settings: Mapping[str, Any]) -> str | None:
    """The first switch, number or size of a head that the engine does not know."""
    for name in sorted(settings.keys() & (SWITCHES | OPTIONAL_NUMBERS)):
        value = settings[name]
        known = isinstance(value, bool) if name in SWITCHES else value is None or _is_number(value)
        if not known or (name == "norm_eps" and value is not None and value <= 0):
            return f"it does not know model.{name} = {value!r}"
    if settings["kind"] == "recurrent" and settings["tie_embeddings"] == "inputs":
        return "it does not know model.tie_embeddings = 'inputs' of a recurrent model"
    heads = settings.get("heads", 1)
    if settings.get("dim") is None and settings["width"] % heads:
        return f"model.width = {settings['width']} cannot be split into model.heads = {heads}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def with_defaults(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a model, with those that older bundles do not store."""
    return {**DEFAULTS, **settings} if settings.get("kind") == "transformer" else settings


def head_dim(settings: Mapping[str, Any]) -> int:
    """The size of a head."""
    dim: int = settings.get("dim") or settings["width"] // settings.get("heads", 1)
    return dim


def split_part(setting: Any) -> tuple[Any, dict[str, Any]]:
    """The kind and the options of a part: a name, or a table with `kind`."""
    if isinstance(setting, Mapping):
        options = dict(setting)
        return options.pop("kind", None), options
    return setting, {}
