"""Attention parts from settings: a score, a normaliser or a position encoding by name, with
options.

A setting is a name ("entmax") or a table with options ({kind = "entmax", alpha = 1.2}). Names are
those of the registries, so parts that users register work like the built-in ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from regard.attention import Mask, causal, everything, window
from regard.attention.normalisers import NORMALISERS, Normaliser
from regard.attention.scores import SCORES, Score
from regard.config import PartSetting
from regard.errors import RegardError, UnknownName, suggestion
from regard.positions import POSITIONS, Position


def make_score(setting: PartSetting, heads: int, dim: int) -> Score:
    """The score that `model.score` names."""
    return _make("score", SCORES, setting, {"heads": heads, "dim": dim})


def make_normaliser(setting: PartSetting) -> Normaliser:
    """The normaliser that `model.normaliser` names."""
    return _make("normaliser", NORMALISERS, setting, {})


def make_position(setting: PartSetting, **sizes: Any) -> Position:
    """The position encoding that `model.position` names; it receives the sizes it asks for."""
    return _make("position", POSITIONS, setting, sizes)


def self_attention_mask(width: int | None, *, is_causal: bool) -> Mask:
    """The mask of self-attention: causal in a decoder, within a window where one is set."""
    mask = causal if is_causal else everything
    return mask if width is None else mask & window(width)


def _make(
    what: str, registry: Mapping[str, type], setting: PartSetting, sizes: dict[str, Any]
) -> Any:
    options: dict[str, Any] = {} if isinstance(setting, str) else dict(setting)
    name = setting if isinstance(setting, str) else options.pop("kind", None)
    if name not in registry:
        hint = suggestion(str(name), registry)
        raise UnknownName(
            f"model.{what}: unknown {what} {name!r}; {hint}{'' if hint.endswith('?') else '.'} A "
            "part of your own must be registered before use: pass its file with --import FILE, "
            "or import it in Python"
        )
    part = registry[name]
    accepted = inspect.signature(part).parameters
    for option in options:
        if option not in accepted or option in sizes:
            known = [known for known in accepted if known not in sizes]
            raise UnknownName(
                f"model.{what}: {name!r} has no option {option!r}; {suggestion(option, known)}"
            )
    try:
        return part(**{size: value for size, value in sizes.items() if size in accepted}, **options)
    except TypeError as error:
        raise RegardError(f"model.{what} = {setting!r}: {error}") from None
