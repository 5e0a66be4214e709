"""Attention compared with effect: alignment, head statistics, and occlusion.

Weights show where a model attends. Occlusion shows which source tokens the output needs.

>>> trace = record(pipeline, "attention")
>>> effects = occlusion(pipeline, trace)  # (target token, source token)
>>> agreement(alignment_matrix(trace), effects)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.answer import links
from regard.attention import Mask, everything
from regard.axes import Site
from regard.errors import RegardError, UnknownName, suggestion
from regard.models import Model, eval_mode
from regard.pipeline import Pipeline
from regard.ragged import Ragged
from regard.trace.trace import Trace

__all__ = ["MEAN", "agreement", "alignment_matrix", "distance", "entropy", "links", "occlusion"]
MEAN = "mean"
Matrix = Float[Tensor, "target source"]


def alignment_matrix(trace: Trace, attention: str = MEAN, head: int | None = None) -> Matrix:
    """The cross-attention weights (target, source): of one attention, or the mean of all.

    Of one attention, it is the mean of its heads, or one `head`.
    """
    crossing = {one.name: one for one in trace.attentions if one.kind == "cross"}
    if not crossing:
        raise RegardError("this model has no attention to its source; use a model with attention")
    if attention == MEAN:
        if head is not None:
            raise RegardError(
                f"the mean is over all heads; name an attention to see its head {head}"
            )
        return torch.stack([trace[f"{name}.weights"].mean(0) for name in crossing]).mean(0)
    if attention not in crossing:
        raise UnknownName(
            f"unknown cross-attention {attention!r}; {suggestion(attention, [*crossing, MEAN])}"
        )
    weights = trace[f"{attention}.weights"]
    if head is None:
        return weights.mean(0)
    crossing[attention].check_head(head)
    return weights[head]


Weights = Float[Tensor, "head query key"]


def bits(probabilities: Float[Tensor, "*row outcome"]) -> Float[Tensor, "*row"]:
    """−Σ p log₂ p: the entropy of each row of probabilities."""
    return torch.special.entr(probabilities).sum(-1) / math.log(2)


def entropy(weights: Weights) -> Float[Tensor, " head"]:
    """The mean entropy of each head's rows, in bits."""
    return bits(weights).mean(-1)


def distance(weights: Weights) -> Float[Tensor, " head"]:
    """The mean attention distance of each head: Σ w · |query − key|, averaged over queries."""
    queries, keys = (torch.arange(size, dtype=weights.dtype) for size in weights.shape[1:])
    return (weights * (queries[:, None] - keys).abs()).sum(-1).mean(-1)


BATCH_TOKENS = 8_192  # tokens of all copies in one batch
LOGITS = 2**26  # logits of all copies in one batch
NONE = -1  # a copy in which no key is hidden


@torch.no_grad()
def occlusion(pipeline: Pipeline, trace: Trace) -> Matrix:
    """log p(token) − log p(token | a source token hidden), as (target token, source token).

    Both ends are included. Above 0, the output needs the source token. A hidden token is masked in
    every attention whose keys are the source's; the encoder of a recurrent model still reads it.
    Target tokens are those of the trace (teacher forcing).
    """
    whole, without = occluded_logps(pipeline, trace)
    return whole[:, None] - without


@torch.no_grad()
def occluded_logps(pipeline: Pipeline, trace: Trace) -> tuple[Float[Tensor, " target"], Matrix]:
    """log p of each target token, and the same with each source token hidden."""
    if trace.edits:
        raise RegardError("occlusion is measured on the unedited model; record without edits")
    model = pipeline.model
    attentions = _source_attentions(model, trace)
    source, target = [piece.id for piece in trace.source], [piece.id for piece in trace.following]
    begin = trace.template.start[0]
    hidden, each = [NONE, *range(len(source))], len(target) * len(pipeline.bundle.target)
    count = max(1, min(BATCH_TOKENS // (len(source) + len(target)), LOGITS // each))
    found = [
        _hidden_logps(model, attentions, source, target, hidden[i : i + count], begin)
        for i in range(0, len(hidden), count)
    ]
    whole, *without = torch.cat(found)
    return whole, torch.stack(without, 1)


def agreement(weights: Tensor, effects: Tensor) -> float | None:
    """Spearman's rank correlation of two matrices over all cells; None if one is constant."""
    if weights.shape != effects.shape:
        raise RegardError(
            f"both need one shape; got {tuple(weights.shape)} and {tuple(effects.shape)}"
        )
    one, other = (_ranks(matrix.flatten()) for matrix in (weights, effects))
    if min(one.min() - one.max(), other.min() - other.max(), key=abs) == 0:
        return None
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])


def _ranks(numbers: Float[Tensor, " cell"]) -> Float[Tensor, " cell"]:
    """Ranks from 1; equal numbers get their mean rank."""
    _, place, counts = numbers.double().unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[place].double()


def _source_attentions(model: Model, trace: Trace) -> list[nn.Module]:
    """The attentions whose keys are the source's."""
    found = [model.get_submodule(one.module) for one in trace.attentions if one.key == "source"]
    if not found:
        raise RegardError("this model has no attention to its source; use a model with attention")
    return found


def _hidden_logps(
    model: Model,
    attentions: Sequence[nn.Module],
    source: Sequence[int],
    target: Sequence[int],
    hidden: Sequence[int],
    begin: int,
) -> Float[Tensor, "copy target"]:
    """The log-probability of each target token, in one copy per hidden source token."""
    keys = torch.tensor(hidden, device=next(model.parameters()).device)
    with eval_mode(model), _hide_keys(attentions, keys):
        return copy_logps(model, source, target, len(hidden), begin)


def copy_logps(
    model: Model, source: Sequence[int], target: Sequence[int], count: int, begin: int
) -> Float[Tensor, "copy target"]:
    """The log-probability of each token after `begin`, the end included, in `count` copies."""
    device = next(model.parameters()).device
    logits = model(
        copies(source, count).to(device), copies([begin, *target[:-1]], count).to(device)
    ).values.float()
    logits = logits.unflatten(0, (count, -1))
    chosen = logits.gather(2, torch.tensor(target, device=device).expand(count, -1)[..., None])[
        ..., 0
    ]
    return (chosen - logits.logsumexp(-1)).cpu()


def copies(ids: Sequence[int], count: int) -> Ragged:
    """A batch of `count` copies of one sequence."""
    return Ragged.of([torch.tensor(ids)] * count)


@dataclass(frozen=True, eq=False)
class HiddenKey(Mask):
    """All keys except one per sequence."""

    keys: Int[Tensor, " batch"]

    formula = "key ≠ hidden"

    def __call__(self, site: Site) -> Tensor:
        return site.key != self.keys[site.batch]


@contextmanager
def _hide_keys(attentions: Sequence[nn.Module], keys: Int[Tensor, " copy"]) -> Iterator[None]:
    """Inside this context, copy i of a batch cannot attend to source position keys[i]."""

    def narrow(
        _: Any, given: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return given, {**options, "mask": options.get("mask", everything) & HiddenKey(keys)}

    hooks = [one.register_forward_pre_hook(narrow, with_kwargs=True) for one in attentions]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
