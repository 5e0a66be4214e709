"""FAMILIES: the model families by name, each with its settings, its model class and its presets.

>>> FAMILIES["transformer"].presets["tiny"]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.config import PRESETS, RecurrentSettings, SettingsGroup, TransformerSettings
from regard.errors import choose
from regard.models.contract import Model
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer


@dataclass(frozen=True)
class Family:
    """A kind of model: what describes it, what builds it, and sizes to start from."""

    settings: type[SettingsGroup]
    model: type[Model]
    presets: dict[str, dict[str, Any]]


FAMILIES: dict[str, Family] = {
    "transformer": Family(TransformerSettings, Transformer, PRESETS["transformer"]),
    "recurrent": Family(RecurrentSettings, Recurrent, PRESETS["recurrent"]),
}


def build(settings: Any, source: int, target: int) -> Model:
    """The model that `settings` describe, for vocabularies of these sizes."""
    family = choose(FAMILIES, settings.kind, "model family")
    model: Any = family.model
    return model(settings, source, target)
