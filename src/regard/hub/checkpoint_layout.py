"""What all Hugging Face layouts share: requirements on settings, and weights as they store them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.attention.scores import ScaledDot
from regard.bundle import Bundle
from regard.hub.folding import fold_queries
from regard.models.families import AttentionDescription

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Requirement:
    """A setting that a layout cannot represent, and the values that it can."""

    setting: str
    value: Any
    needed: str

    def __str__(self) -> str:
        return f"{self.setting} must be {self.needed}, not {self.value!r}"


@dataclass(frozen=True)
class HFCheckpoint:
    """The files of a model: configuration and weights; `longest` is the limit of a side."""

    config: dict[str, Any]
    tensors: Tensors
    longest: int | None


class CheckpointLayout(Protocol):
    """A class of `transformers` that a model may be written for."""

    @property
    def name(self) -> str:
        """The name of the class's family."""

    def unmet(self, bundle: Bundle) -> list[Requirement]:
        """The settings that it cannot represent."""

    def convert(self, bundle: Bundle) -> HFCheckpoint:
        """The configuration and the weights."""


Rule = tuple[str, Callable[[Any], bool], str]  # setting, whether its value fits, values that fit


def kind_of(part: Any) -> str:
    """The name of a part in the settings."""
    return part if isinstance(part, str) else str(part.get("kind"))


def one_of(*names: Any) -> tuple[Callable[[Any], bool], str]:
    """A rule that allows some names."""
    listed = ", ".join(map(repr, names[:-1]))
    text = f"{listed} or {names[-1]!r}" if len(names) > 1 else repr(names[0])
    return lambda value: (kind_of(value) if isinstance(value, dict) else value) in names, text


SHARED_RULES: list[Rule] = [
    ("score", *one_of("scaled-dot", "dot", "general")),
    ("normaliser", *one_of("softmax")),
]


def unmet_rules(settings: Any, rules: list[Rule]) -> Iterator[Requirement]:
    """The settings that break a rule."""
    for name, fits, needed in rules:
        value = getattr(settings, name)
        if not fits(value):
            shown = kind_of(value) if isinstance(value, dict) else value
            yield Requirement(f"model.{name}", shown, needed)


def unmet_template(bundle: Bundle) -> Iterator[Requirement]:
    """`transformers` gives the decoder one start token and forces at most one more."""
    if len(bundle.template.start) > 2:
        yield Requirement("template.start", bundle.template.start, "one or two tokens")


def scaled_queries(attention: AttentionDescription, scale: float) -> nn.Linear:
    """The projection of queries for scores q · k · scale."""
    own = 1 / math.sqrt(attention.projections.dim)
    factor = (own if type(attention.parts.score) is ScaledDot else 1.0) / scale
    projection = fold_queries(attention)
    if factor == 1:
        return projection
    scaled = nn.Linear(projection.in_features, projection.out_features, projection.bias is not None)
    with torch.no_grad():
        for ours, theirs in zip(scaled.parameters(), projection.parameters(), strict=True):
            ours.copy_(theirs.double() * factor)
    return scaled


def projections(attention: AttentionDescription, scale: float) -> dict[str, tuple[Tensor, Tensor]]:
    """Weight and bias of queries, keys, values and out; heads that share keys get copies."""
    own = attention.projections
    queries = scaled_queries(attention, scale)
    copies = own.heads // own.kv_heads
    return {
        "queries": weight_and_bias(queries),
        "keys": _repeated(weight_and_bias(own.keys), own.kv_heads, copies),
        "values": _repeated(weight_and_bias(own.values), own.kv_heads, copies),
        "out": weight_and_bias(own.out),
    }


def weight_and_bias(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Both; the bias is zero where there is none."""
    weight = layer.weight.detach()
    bias = layer.bias.detach() if layer.bias is not None else torch.zeros(len(weight))
    return weight, bias


def _repeated(pair: tuple[Tensor, Tensor], heads: int, copies: int) -> tuple[Tensor, Tensor]:
    """The rows of each head repeated for all heads that share it."""
    if copies == 1:
        return pair
    weight, bias = (
        part.unflatten(0, (heads, -1)).repeat_interleave(copies, 0).flatten(0, 1) for part in pair
    )
    return weight, bias


def padding_token(bundle: Bundle) -> int:
    """A token for padding, which Regard does not need: one that no text has."""
    template = bundle.template
    if template.start[0] != template.end:
        return template.start[0]
    return template.banned[0] if template.banned else template.unknown


def special_token_ids(bundle: Bundle) -> dict[str, int]:
    """The special tokens of a configuration."""
    start = bundle.template.start
    ids = {
        "bos_token_id": start[0],
        "eos_token_id": bundle.template.end,
        "pad_token_id": padding_token(bundle),
        "decoder_start_token_id": start[0],
    }
    return ids | ({"forced_bos_token_id": start[1]} if len(start) == 2 else {})
