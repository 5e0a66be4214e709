"""Causes: what an answer loses when a source token is hidden. Weights say where a model looked, this what it needed.

>>> trace = record(pipeline, "attention")
>>> effects = causes(pipeline, trace)                # (answer token, source token)
>>> agreement(aligned(trace), effects)                 # do they say the same?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Attention, Mask, everything
from regard.axes import Site
from regard.errors import RegardError
from regard.models import Model, eval_mode
from regard.models.recurrent import Recurrent
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.text import BEGIN
from regard.trace.trace import Trace

TOGETHER = 8_192  # tokens of all copies that are computed together
LOGITS = 2**26  # and numbers of theirs that are held
NONE = -1  # no key stands there: a copy that hides nothing
Matrix = Float[Tensor, "target source"]


@torch.no_grad()
def causes(pipeline: Pipeline, trace: Trace) -> Matrix:
    """log p(token) − log p(token | a source token hidden), for each token of the answer and each of the source, ends
    included. Above 0 the source token was needed.

    Hidden means that no attention sees it: neither those of the encoder nor those of the decoder. The recurrent encoder
    of an RNN has read it all the same. All tokens that were said stay as they were.
    """
    if trace.edits:
        raise RegardError("causes are measured on the model as it is; record without edits")
    model = pipeline.model
    source, said = [piece.id for piece in trace.source], [piece.id for piece in trace.following]
    hidden, each = [NONE, *range(len(source))], len(said) * len(pipeline.bundle.target)
    count = max(1, min(TOGETHER // (len(source) + len(said)), LOGITS // each))
    found = [
        _without(model, source, said, hidden[i : i + count]) for i in range(0, len(hidden), count)
    ]
    whole, *without = torch.cat(found)
    return torch.stack([whole - one for one in without], 1)


def agreement(weights: Tensor, effects: Tensor) -> float | None:
    """Spearman's rank correlation of two matrices, cell by cell: 1 where they put all cells into the same order. None
    where one of them has no order."""
    if weights.shape != effects.shape:
        raise RegardError(
            f"both need one shape; got {tuple(weights.shape)} and {tuple(effects.shape)}"
        )
    one, other = (_ranks(matrix.flatten()) for matrix in (weights, effects))
    if min(one.min() - one.max(), other.min() - other.max(), key=abs) == 0:
        return None
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])


def _ranks(numbers: Float[Tensor, " cell"]) -> Float[Tensor, " cell"]:
    """Places in the order of size; equal numbers share the mean of theirs."""
    _, place, counts = numbers.double().unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[place].double()


def _without(
    model: Model, source: Sequence[int], said: Sequence[int], hidden: Sequence[int]
) -> Float[Tensor, "copy target"]:
    """The log-probability of each token that was said, in a copy for each source token that is hidden."""
    with (
        eval_mode(model),
        _hiding(model, torch.tensor(hidden, device=next(model.parameters()).device)),
    ):
        return scored(model, source, said, len(hidden))


def scored(
    model: Model, source: Sequence[int], said: Sequence[int], count: int
) -> Float[Tensor, "copy target"]:
    """The log-probability of each token of an answer, its end included, in so many copies of one batch."""
    device = next(model.parameters()).device
    logits = model(
        copies(source, count).to(device), copies([BEGIN, *said[:-1]], count).to(device)
    ).values.float()
    logits = logits.unflatten(0, (count, -1))
    chosen = logits.gather(2, torch.tensor(said, device=device).expand(count, -1)[..., None])[
        ..., 0
    ]
    return (chosen - logits.logsumexp(-1)).cpu()


def copies(ids: Sequence[int], count: int) -> Ragged:
    """The same sequence, so many times."""
    return Ragged.of([torch.tensor(ids)] * count)


@dataclass(frozen=True, eq=False)
class Without(Mask):
    """All keys but one, another in each sequence."""

    keys: Int[Tensor, " batch"]

    formula = "key ≠ hidden"

    def __call__(self, site: Site) -> Tensor:
        return site.key != self.keys[site.batch]


@contextmanager
def _hiding(model: Any, keys: Int[Tensor, " copy"]) -> Iterator[None]:
    """While this is open, copy i of a batch sees no key at keys[i] of the source."""

    def narrow(
        _: Any, given: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return given, {**options, "mask": options.get("mask", everything) & Without(keys)}

    hooks = [one.register_forward_pre_hook(narrow, with_kwargs=True) for one in _readers(model)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _readers(model: Any) -> list[Attention]:
    """The attentions whose keys are the source's."""
    if isinstance(model, Recurrent):
        found = model.cross_attentions()
    else:
        found = [layer.self_attention.attention for layer in model.encoder]
        found += [layer.cross_attention.attention for layer in model.decoder]
    if not found:
        raise RegardError(
            "this model has no attention to its source: all it knows of it is one vector"
        )
    return found
