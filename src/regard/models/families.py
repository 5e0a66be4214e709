"""FAMILIES: the model families by name, and descriptions of what their layers compute.

A description lists the projections, parts, mask, norms and norm order of a layer as the modules
hold them now. Every engine and the tracer read it, so a part replaced after construction is seen
by all of them.

>>> FAMILIES["transformer"].presets["tiny"]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from regard.attention import Attention, Mask, MultiHead, causal, everything
from regard.attention.normalisers import Normaliser, Softmax
from regard.attention.scores import ScaledDot, Score
from regard.config import PRESETS, RecurrentSettings, SettingsGroup, TransformerSettings
from regard.ensemble_settings import EnsembleSettings
from regard.errors import choose
from regard.models.contract import Model
from regard.models.ensemble import Ensemble
from regard.models.layers import (
    ACTIVATIONS,
    GATED,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Sublayer,
)
from regard.models.parts import Dropout, Embedding, Output
from regard.models.recurrent import Recurrent
from regard.models.transformer import Stack, Transformer
from regard.positions import Position


@dataclass(frozen=True)
class Family:
    """A kind of model: its settings, its class, and presets of its size."""

    settings: type[SettingsGroup]
    model: type[Model]
    presets: dict[str, dict[str, Any]]


FAMILIES: dict[str, Family] = {
    "transformer": Family(TransformerSettings, Transformer, PRESETS["transformer"]),
    "recurrent": Family(RecurrentSettings, Recurrent, PRESETS["recurrent"]),
}


def build(settings: Any, source: int, target: int) -> Model:
    """The model that `settings` describe, for vocabularies of these sizes."""
    if isinstance(settings, EnsembleSettings):
        sides = settings.members, settings.reversed_members
        return Ensemble(*([build(one, source, target) for one in side] for side in sides))
    family = choose(FAMILIES, settings.kind, "model family")
    model: Any = family.model
    return model(settings, source, target)


# Modules that engines reproduce from their weights. Subclasses may compute something else.
KNOWN = {
    Transformer, Stack, EncoderLayer, DecoderLayer, MultiHead, Attention, FeedForward, Sublayer,
    Embedding, Output, Dropout, nn.Dropout, nn.Identity, nn.LayerNorm, nn.Linear, nn.RMSNorm,
}  # fmt: skip
PARTS = (Score, Normaliser, Position)  # called by engines, so any subclass will do


@dataclass(frozen=True, eq=False)
class AttentionDescription:
    """One attention of a layer: its projections, its parts and its mask."""

    projections: MultiHead
    mask: Mask

    @property
    def parts(self) -> Attention:
        """Score, bias and normaliser."""
        return self.projections.attention

    @property
    def rotation(self) -> Any:
        """The encoding that rotates queries and keys, if there is one."""
        return self.projections.rotation

    @property
    def is_scaled_dot_softmax(self) -> bool:
        """Whether the weights are softmax(q · k / √d + bias)."""
        return type(self.parts.score) is ScaledDot and type(self.parts.normaliser) is Softmax

    @cached_property
    def is_plain(self) -> bool:
        """Whether it is scaled dot-product attention with no bias and no window."""
        unlimited = self.mask == causal or self.mask == everything
        return self.is_scaled_dot_softmax and self.parts.bias is None and unlimited


@dataclass(frozen=True, eq=False)
class LayerDescription:
    """One layer: its attentions, feed-forward, norms (one per sublayer) and norm order."""

    self_attention: AttentionDescription
    cross_attention: AttentionDescription | None
    feed_forward: FeedForward
    norms: tuple[nn.Module, ...]
    pre_norm: bool


def describe(layer: EncoderLayer | DecoderLayer) -> LayerDescription:
    """What a layer computes."""
    sublayers, cross = [layer.residual1, layer.residual2], None
    if isinstance(layer, DecoderLayer):
        sublayers.append(layer.residual3)
        cross = AttentionDescription(layer.cross_attention, everything)
    return LayerDescription(
        AttentionDescription(layer.self_attention, layer.mask),
        cross,
        layer.feed_forward,
        tuple(sublayer.norm for sublayer in sublayers),
        sublayers[0].pre_norm,
    )


def unknown_part(model: Model) -> str | None:
    """Names the first module that engines cannot reproduce from a description, if there is one."""
    if type(model) is not Transformer:
        return f"it runs the Transformer family, and this is a {type(model).__name__}"
    for name, module in model.named_modules():
        inside = any(isinstance(model.get_submodule(up), PARTS) for up in _parents(name))
        if type(module) not in KNOWN and not isinstance(module, PARTS) and not inside:
            return f"{name} is a {type(module).__name__}, which it does not know"
    sizes = {
        (part.heads, part.kv_heads, part.dim)
        for part in model.modules()
        if isinstance(part, MultiHead)
    }
    if len(sizes) > 1:
        return "its layers differ in their heads"
    activations = {part.activation for part in model.modules() if isinstance(part, FeedForward)}
    if unknown := activations - {*ACTIVATIONS, *GATED}:
        return f"it does not know the activation {min(unknown)!r}"
    orders = {part.pre_norm for part in model.modules() if isinstance(part, Sublayer)}
    return "its layers differ in their norm order" if len(orders) > 1 else None


def _parents(name: str) -> list[str]:
    pieces = name.split(".")
    return [".".join(pieces[:count]) for count in range(1, len(pieces))]
