"""Head ablation: every head removed in turn, many at once, and its effect on the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.explore.messages import (
    MAX_TOKENS,
    Decoding,
    HeadAblationRequest,
    TraceRequest,
)
from regard.explore.trace_store import TraceStore, check_model
from regard.models import Model
from regard.ragged import Ragged
from regard.search.search_batches import length_limits
from regard.search.start import start_tokens
from regard.text.template import Template
from regard.trace.attention_analysis import BATCH_TOKENS, copies, copy_logps

if TYPE_CHECKING:
    from regard.trace import AttentionBlock

Head = tuple[str, int]  # an attention and the index of its head


@torch.no_grad()
def ablate_heads(traces: TraceStore, request: HeadAblationRequest) -> dict[str, Any]:
    """The output without each head, and its effect: log p(output) − log p(output | head ablated).

    All outputs come from greedy search, the full model's too, so a change is due to the head."""
    stored = traces.compute(
        TraceRequest(**request.model_dump(), decoding=Decoding.model_validate({"beam": 1}))
    )
    model, base = stored.model, stored.trace
    check_model(stored)
    heads = [(one.name, head) for one in base.attentions for head in range(one.heads)]
    source = [piece.id for piece in base.source]
    target = [piece.id for piece in base.following]
    batch = max(1, BATCH_TOKENS // (len(source) + len(target)))
    logp = float(base["out.total"])
    results = []
    with model.exclusive() as pipeline:
        template = base.template
        max_length = int(length_limits(torch.tensor([len(source)]), **pipeline.length_limits)[0])
        for start in range(0, len(heads), batch):
            part = heads[start : start + batch]
            with ablated(pipeline.model, base.attentions, part):
                logps = copy_logps(pipeline.model, source, target, len(part), template.start[0])
                logps = logps[:, len(template.start) - 1 :].sum(1)
                outputs = decode_copies(
                    pipeline.model, source, len(part), min(MAX_TOKENS, max_length), template
                )
            for (attention, head), without, ids in zip(part, logps.tolist(), outputs, strict=True):
                text = pipeline.bundle.target.decode(ids)
                place = {"attention": attention, "head": head, "text": text}
                results.append({**place, "logp": without, "effect": logp - without})
    return {"base": {"text": base.answer.text, "logp": logp}, "heads": results}


@contextmanager
def ablated(
    model: Model, attentions: Sequence[AttentionBlock], heads: Sequence[Head]
) -> Iterator[None]:
    """Copy i of a batch of copies runs without head i: its context is zero before W_O."""
    hooks = []
    for one in attentions:
        keep = torch.ones(len(heads), one.heads)
        for copy, (name, head) in enumerate(heads):
            keep[copy, head] = float(name != one.name)
        attention = model.get_submodule(one.module)
        hooks.append(attention.register_forward_hook(_ContextScaling(keep)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _ContextScaling:
    """A hook that multiplies the contexts of an attention, in each copy by the factor of a head."""

    def __init__(self, keep: Float[Tensor, "copy head"]) -> None:
        self.keep = keep

    def __call__(self, _: nn.Module, arguments: Any, context: Ragged | Tensor) -> Ragged | Tensor:
        if isinstance(context, Ragged):  # all copies have the same length
            by_copy = context.values.unflatten(0, (len(self.keep), -1))
            return context.like((by_copy * self.keep[:, None, :, None]).flatten(0, 1))
        return context * self.keep[:, :, None, None]


def decode_copies(
    model: Model, source: Sequence[int], count: int, max_length: int, template: Template
) -> list[list[int]]:
    """The greedy output of each copy. No copy leaves early, so copy i stays in row i."""
    state, tokens = start_tokens(model, copies(source, count), template)
    outputs, end = torch.empty(count, 0, dtype=torch.long), template.end
    while outputs.shape[1] < max_length and not (outputs == end).any(1).all():
        logits, state = model.step(tokens, state)
        logits[:, list(template.banned)] = -torch.inf
        tokens = logits.argmax(1)
        outputs = torch.cat([outputs, tokens[:, None]], 1)
    return [_before(end, row) for row in outputs]


def _before(end: int, row: Int[Tensor, " time"]) -> list[int]:
    ids: list[int] = row.tolist()
    return ids[: ids.index(end)] if end in ids else ids
