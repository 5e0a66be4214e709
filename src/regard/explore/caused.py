"""Caused: what each answer token loses when a source token is hidden, and how well any attention foretells it."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from regard.explore.refusals import invalid
from regard.explore.traces import Held
from regard.trace.attention_analysis import MEAN, agreement, alignment_matrix, occlusion

_KNOWN: WeakKeyDictionary[Held, Tensor] = WeakKeyDictionary()  # as long as the trace is held


def caused(held: Held) -> dict[str, Any]:
    """The effects (answer token, source token); and for each cross-attention, and the mean of all, the rank correlation
    of its weights with them."""
    if held.ask.edits:
        raise invalid("causes are measured on the model as it is; take the edits away to see them", "edited")
    names = [one.name for one in held.trace.attentions if one.kind == "cross"]
    if not names:
        raise invalid("this model has no attention to its source: all it knows of it is one vector", "no-attention")
    if held not in _KNOWN:
        with held.model.turn() as pipeline:
            _KNOWN[held] = occlusion(pipeline, held.trace)
    effects = _KNOWN[held]
    ranks = {name: agreement(alignment_matrix(held.trace, name), effects) for name in (MEAN, *names)}
    return {"effects": effects.tolist(), "ranks": ranks}
