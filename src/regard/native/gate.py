"""The gate of the native engine: which models it runs, decided from their settings.

The settings are plain values that nothing has validated: a missing, unknown or odd one is refused,
and torch then reports what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from regard.model_limits import (
    MAX_BASE,
    MAX_BUCKETS,
    MAX_DISTANCE,
    MAX_FACTOR,
    MAX_FFN_WIDTH,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_WIDTH,
    MAX_WINDOW,
    MIN_BASE,
)


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_frequency(value: Any) -> bool:
    return _is_number(value) and MIN_BASE <= value <= MAX_BASE


def _is_distance(value: Any) -> bool:
    return _is_count(value, MAX_DISTANCE)


# The options of each position encoding, and the values that the engine takes.
POSITION_OPTIONS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "none": {},
    "sinusoidal": {
        "base": _is_frequency,
        "order": lambda value: value in ("paired", "halves"),
    },
    "learned": {"max_length": lambda value: _is_count(value, MAX_POSITIONS)},
    "rotary": {
        "base": _is_frequency,
        "fraction": lambda value: _is_number(value) and 0 < value <= 1,
        "pairs": lambda value: value in ("halves", "neighbours"),
        "scaling": lambda value: value in ("none", "linear", "ntk"),
        "factor": lambda value: _is_number(value) and 1 <= value <= MAX_FACTOR,
    },
    "alibi": {},
    "distance": {"max_distance": _is_distance},
    "t5": {"buckets": lambda value: _is_count(value, MAX_BUCKETS), "max_distance": _is_distance},
    "shaw": {"max_distance": _is_distance},
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
COUNTS = {
    "width": MAX_WIDTH,
    "heads": MAX_HEADS,
    "ffn_width": MAX_FFN_WIDTH,
    "encoder_layers": MAX_LAYERS,
    "decoder_layers": MAX_LAYERS,
}
OPTIONAL_COUNTS = {"kv_heads": MAX_HEADS, "window": MAX_WINDOW, "dim": MAX_HEAD_DIM}
LIMITS = {**COUNTS, **OPTIONAL_COUNTS}
SWITCHES = {"biases", "embedding_norm", "output_bias"}
NUMBERS = {"norm_eps": 1, "embedding_scale": MAX_FACTOR}  # above 0, and at most this
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
    if not isinstance(family, str) or family not in SETTINGS:
        return f"it runs transformer and recurrent models, not model.kind = {family!r:.80}"
    settings = with_defaults(settings)
    if odd := settings.keys() ^ SETTINGS[family]:
        name = repr(min(odd))[1:-1]  # on one line
        return f"model.{name:.80} is {'unknown' if min(odd) in settings else 'missing'}"
    for name in sorted(settings.keys() & LIMITS.keys()):
        value = settings[name]
        if name in OPTIONAL_COUNTS and value is None:
            continue
        if not _is_count(value, LIMITS[name]):
            return f"it does not know model.{name} = {value!r:.80}"
    for name, known in CHOICES.items():
        if name in settings and settings[name] not in known:  # compares, and so takes any value
            return f"it does not know model.{name} = {settings[name]!r:.80}"
    if reason := _unsupported_value(settings):
        return reason
    scores = TRANSFORMER_SCORES if family == "transformer" else RECURRENT_SCORES
    attends = family == "transformer" or settings["attention"] != "none"
    parts = [("score", scores), ("normaliser", ("softmax",))] if attends else []
    for name, supported in parts:
        kind, options = split_part(settings[name])
        if kind not in supported:
            return f"it supports model.{name} = {' or '.join(supported)}, not {kind!r:.80}"
        if options:
            return f"it does not know the option {min(options)!r:.80} of model.{name} = {kind!r}"
    if family == "transformer":
        if reason := _unsupported_position(*split_part(settings["position"])):
            return reason
        if (backend := settings.get("attention_backend", "auto")) != "auto":
            return f"model.attention_backend = {backend!r:.80} asks for another backend"
    return None


def _unsupported_position(kind: Any, options: dict[str, Any]) -> str | None:
    """The position encoding, or the first of its options, that the engine does not know."""
    if not isinstance(kind, str) or kind not in POSITION_OPTIONS:
        return f"it does not know model.position = {kind!r:.80}"
    known = POSITION_OPTIONS[kind]
    for name in sorted(options):
        if name not in known:
            return f"it does not know the option {name!r:.80} of model.position = {kind!r}"
        if not known[name](options[name]):
            return f"it does not know {name} = {options[name]!r:.80} of model.position = {kind!r}"
    return None


def _unsupported_value(settings: Mapping[str, Any]) -> str | None:
    """The first switch, number or size of a head that the engine does not know."""
    for name in sorted(settings.keys() & (SWITCHES | NUMBERS.keys())):
        value = settings[name]
        known = isinstance(value, bool) if name in SWITCHES else value is None or _is_number(value)
        if not known or (value is not None and name in NUMBERS and not 0 < value <= NUMBERS[name]):
            return f"it does not know model.{name} = {value!r:.80}"
    if settings["kind"] == "recurrent" and settings["tie_embeddings"] == "inputs":
        return "it does not know model.tie_embeddings = 'inputs' of a recurrent model"
    heads = settings.get("heads", 1)
    if settings.get("dim") is None and settings["width"] % heads:
        return f"model.width = {settings['width']} cannot be split into model.heads = {heads}"
    return None


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
