"""build: a model from its settings."""

from __future__ import annotations

from regard.config import RecurrentSettings, TransformerSettings
from regard.models.contract import Model
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer


def build(settings: TransformerSettings | RecurrentSettings, source: int, target: int) -> Model:
    """The model that `settings` describe, for vocabularies of these sizes."""
    if isinstance(settings, TransformerSettings):
        return Transformer(settings, source, target)
    return Recurrent(settings, source, target)
