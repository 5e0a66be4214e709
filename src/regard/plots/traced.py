"""What a picture reads of a trace. `regard.record` makes one; any object with these parts will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.errors import RegardError, UnknownName, suggestion
from regard.plots.labels import step_labels, token_labels
from regard.text import BEGIN, END, UNKNOWN, Piece
from regard.text.tokenizers import SYMBOLS
from regard.transducer import Transducer

SIGNS = {SYMBOLS[BEGIN]: "▶", SYMBOLS[END]: "■", SYMBOLS[UNKNOWN]: "<unknown>"}


@runtime_checkable
class Attending(Protocol):
    """One attention of a trace: how its tensors are called, who asks and who answers."""

    @property
    def name(self) -> str:
        """How the names of its tensors begin."""

    @property
    def kind(self) -> str:
        """encoder, decoder or cross."""

    @property
    def heads(self) -> int:
        """How many there are."""

    @property
    def query(self) -> str:
        """The side that asks: source or target."""

    @property
    def key(self) -> str:
        """The side that answers."""


@runtime_checkable
class Traced(Protocol):
    """Tensors by name, the tokens of both sides, and what follows each token of the target."""

    @property
    def transducer(self) -> Transducer:
        """The model."""

    @property
    def numbers(self) -> Mapping[str, Tensor]:
        """The model's weights by name, among others."""

    @property
    def source(self) -> Sequence[Piece]:
        """The tokens read."""

    @property
    def target(self) -> Sequence[Piece]:
        """The tokens fed in, BEGIN first."""

    @property
    def following(self) -> Sequence[Piece]:
        """What follows each of them, END last."""

    @property
    def names(self) -> Sequence[str]:
        """All tensors, in the order in which they arise."""

    @property
    def attentions(self) -> Sequence[Any]:
        """All attentions, each `Attending`."""

    def __getitem__(self, name: str) -> Tensor:
        """A tensor."""

    def axes(self, name: str) -> tuple[str, ...]:
        """What its axes stand for."""

    def operation(self, name: str) -> Any:
        """How it was made: with `kind`, `formula`, and the names of its `inputs` and `weights`."""


def own(trace: Traced, name: str) -> str:
    """The name of what the model itself made, where a hand changed it."""
    return f"{name}.own" if f"{name}.own" in trace.names else name


def texts(trace: Traced, side: str) -> list[str]:
    """The tokens of a side as they look."""
    if side not in ("source", "target"):
        raise RegardError(f"side must be 'source' or 'target'; got {side!r}")
    return [spelled(piece.text) for piece in (trace.source if side == "source" else trace.target)]


def spelled(text: str) -> str:
    """A token as it looks; begin and end have signs, as on the page."""
    return SIGNS.get(text, text)


def predicted(trace: Traced, side: str) -> list[str] | None:
    """What follows each row of the target; the source predicts nothing."""
    return [spelled(piece.text) for piece in trace.following] if side == "target" else None


def row_labels(trace: Traced, side: str) -> list[str]:
    """Each token of the source; of the target also what follows it, "after the → Hund"."""
    following = predicted(trace, side)
    return token_labels(texts(trace, side)) if following is None else step_labels(texts(trace, side), following)


def row_label(trace: Traced, side: str, position: int) -> str:
    """One token, checked to be there."""
    labels = row_labels(trace, side)
    if not 0 <= position < len(labels):
        raise RegardError(f"position {position} is not one of the {side}'s 0 to {len(labels) - 1}")
    return labels[position]


def attended(trace: Traced, name: str) -> Attending:
    """The attention of that name."""
    known = {one.name: one for one in trace.attentions}
    if name not in known:
        way_out = suggestion(name, known) if known else "this model has none"
        raise UnknownName(f"unknown attention {name!r}; {way_out}")
    found: Attending = known[name]
    return found


def check_head(one: Attending, head: int) -> None:
    """Raise unless the attention has that head."""
    if not 0 <= head < one.heads:
        raise RegardError(f"{one.name} has heads 0 to {one.heads - 1}; got {head}")


def allowed(trace: Traced, one: Attending) -> Bool[Tensor, "head query key"]:
    """Where an attention may look: not where its scores are −∞, unless a weight was put there by hand."""
    weights, masked = trace[f"{one.name}.weights"], f"{one.name}.masked"
    if masked not in trace.names:
        return torch.ones(weights.shape, dtype=torch.bool)
    return trace[masked].isfinite() | (weights != 0)
