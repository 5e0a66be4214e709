"""Teacher forcing: what a model computes for given targets in one pass: log-probabilities and
attention weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import get_ident
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention
from regard.errors import RegardError
from regard.kernels import IGNORE_INDEX
from regard.kernels.fused_linear import ReadOnlyHook
from regard.models import Model, eval_mode
from regard.ragged import Ragged
from regard.text import with_begin, with_end, with_labels, with_source_tokens
from regard.text.template import DEFAULT_TEMPLATE, Template

Weights = Float[Tensor, "_head _query _key"]  # each attention has its own


@torch.no_grad()
def record_attention(model: Model, source: Ragged, prefix: Ragged) -> dict[str, Weights]:
    """The weights of every attention by module name, for one source and one prefix. Row i of a
    decoder's weights belongs to the step after prefix token i."""
    parts = {name: part for name, part in model.named_modules() if isinstance(part, Attention)}
    recorders = {name: AttentionRecorder() for name in parts}
    hooks = [
        part.register_forward_pre_hook(recorders[name], with_kwargs=True)
        for name, part in parts.items()
    ]
    try:
        model.read(source, prefix)
    finally:
        for hook in hooks:
            hook.remove()
    # A recurrent decoder attends once per step; an attention may also not be used at all.
    recorded = {name: one.weights for name, one in recorders.items() if one.weights}
    return {name: torch.cat(rows, 1) for name, rows in recorded.items()}


class AttentionRecorder(ReadOnlyHook):
    """Records the weights of an attention, when called in the thread that created it.

    Other threads may run the same model; their searches may bypass this hook.
    """

    def __init__(self) -> None:
        self.thread = get_ident()
        self.weights: list[Tensor] = []

    def __call__(self, attention: Attention, arguments: Any, options: Any = None) -> None:
        # While the hook is removed, torch may call it in another thread without options.
        if get_ident() == self.thread:
            self.weights.append(attention.intermediates(*arguments, **options).weights[0])


def alignment(
    model: Model, seen: dict[str, Weights], template: Template = DEFAULT_TEMPLATE
) -> Float[Tensor, "query key"]:
    """The alignment of each generated token with the source: mean cross-attention over layers and
    heads. With softmax, every row sums to 1. The last column belongs to the special tokens."""
    crossing = set(map(id, model.cross_attentions()))
    names = [name for name, part in model.named_modules() if id(part) in crossing]
    if not names:
        raise RegardError(
            "this model has no cross-attention to align with (model.attention = none)"
        )
    weights = torch.stack([seen[name].mean(0) for name in names]).mean(0)
    weights = weights[len(template.start) - 1 :]
    if template.reversed:
        weights = torch.cat([weights[:-1].flip(0), weights[-1:]])
    before, after = len(template.source_prefix), len(template.source_suffix)
    if (before, after) == (0, 1):
        return weights
    last = weights.shape[1] - after
    special = weights[:, :before].sum(1, True) + weights[:, last:].sum(1, True)
    return torch.cat([weights[:, before:last], special], 1)


NEEDS_FORWARD = (
    "need a model that generates targets from the beginning, and this one was trained with "
    "text.target_order = reversed"
)

Ids = Sequence[int]


@torch.no_grad()
def target_logps(
    model: Model,
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    template: Template = DEFAULT_TEMPLATE,
) -> list[list[float]]:
    """The log-probability of each target token and of the end, for each pair, in the order of the
    text."""
    if template.reversed:
        forward = replace(template, reversed=False)
        rows = target_logps(model, sources, [ids[::-1] for ids in targets], forward)
        return [[*row[-2::-1], row[-1]] for row in rows]
    labels = with_end(_ragged(targets), template).to(next(model.parameters()).device)
    with eval_mode(model):
        logits = model(*_inputs(model, sources, targets, template))
    logps = logits.values.float().log_softmax(-1)
    if len(template.start) > 1:  # without the positions that predict a start token
        expected = with_labels(_ragged(targets), template).values.to(logps.device)
        logps = logps[expected != IGNORE_INDEX]
    return [row.tolist() for row in labels.like(logps.gather(1, labels.values[:, None])[:, 0])]


@torch.no_grad()
def next_logps(
    model: Model, source: Ids, prefix: Ids, template: Template = DEFAULT_TEMPLATE
) -> Float[Tensor, " vocabulary"]:
    """The log-probabilities of the token that follows a prefix; −∞ for banned tokens."""
    refuse_reversed(template, "the tokens that follow a prefix")
    with eval_mode(model):
        logits = model(*_inputs(model, [source], [prefix], template))
    logps = logits.values[-1].float().log_softmax(-1)
    if template.banned:
        logps[list(template.banned)] = float("-inf")
    return logps


def attention_maps(
    model: Model, source: Ids, target: Ids, template: Template = DEFAULT_TEMPLATE
) -> dict[str, Tensor]:
    """The weights (head, query, key) of every attention, by the name of its module; queries have
    the order in which the decoder generates them."""
    with eval_mode(model):
        return record_attention(model, *_inputs(model, [source], [target], template))


def refuse_reversed(template: Template, purpose: str) -> None:
    """Raise for a model that generates targets from the end."""
    if template.reversed:
        raise RegardError(f"{purpose} {NEEDS_FORWARD}")


def _inputs(
    model: Model, sources: Sequence[Ids], targets: Sequence[Ids], template: Template
) -> tuple[Ragged, Ragged]:
    """What the encoder and the decoder read for some pairs."""
    targets = [template.in_order(ids) for ids in targets]
    device = next(model.parameters()).device
    source = with_source_tokens(_ragged(sources), template)
    return source.to(device), with_begin(_ragged(targets), template).to(device)


def _ragged(sequences: Sequence[Ids]) -> Ragged:
    return Ragged.of([torch.tensor(ids, dtype=torch.long) for ids in sequences])
