"""Head ablation: every head removed in turn, many at once, and its effect on the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.explore.messages import (
    MAX_TOKENS,
    HeadAblationRequest,
    SearchChoice,
    TraceRequest,
)
from regard.explore.model_store import ModelStore
from regard.explore.trace_store import TraceStore
from regard.models import Model
from regard.models.recurrent import Recurrent
from regard.ragged import Ragged
from regard.search.length_batching import length_limits
from regard.text import BEGIN, END
from regard.trace.attention_analysis import TOGETHER, copies, scored

if TYPE_CHECKING:
    from regard.trace import AttentionBlock

Head = tuple[str, int]  # an attention and the index of its head


@torch.no_grad()
def ablate_heads(
    models: ModelStore, traces: TraceStore, request: HeadAblationRequest
) -> dict[str, Any]:
    """The output without each head, and its effect: log p(output) − log p(output | head ablated).

    All outputs come from greedy search, the full model's too, so a change is due to the head."""
    model, greedy = models[request.model], SearchChoice(method="greedy")
    base = traces.compute(TraceRequest(**request.model_dump(), decode=greedy)).trace
    heads = [(one.name, head) for one in base.attentions for head in range(one.heads)]
    source = [piece.id for piece in base.source]
    target = [piece.id for piece in base.following]
    batch = max(1, TOGETHER // (len(source) + len(target)))
    logp = float(base["out.total"])
    results = []
    with model.exclusive() as pipeline:
        max_length = int(length_limits(torch.tensor([len(source)]), **pipeline.length_limits)[0])
        for start in range(0, len(heads), batch):
            part = heads[start : start + batch]
            with ablated(pipeline.model, base.attentions, part):
                logps = scored(pipeline.model, source, target, len(part)).sum(1)
                outputs = decode_copies(
                    pipeline.model, source, len(part), min(MAX_TOKENS, max_length)
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
        keep = torch.ones(len(heads), 1, one.heads, 1)
        for copy, (name, head) in enumerate(heads):
            keep[copy, :, head] = float(name != one.name)
        if isinstance(model, Recurrent):  # it has one head, which is ablated
            assert model.attention is not None
            hooks.append(model.attention.attention.register_forward_hook(_zero_context))
        else:
            hooks.append(_attention(model, one.name).out.register_forward_pre_hook(_scale(keep)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def decode_copies(
    model: Model, source: Sequence[int], count: int, max_length: int
) -> list[list[int]]:
    """The greedy output of each copy. No copy leaves early, so copy i stays in row i."""
    state = model.start(model.encode(copies(source, count)))
    tokens, outputs = torch.full((count,), BEGIN), torch.empty(count, 0, dtype=torch.long)
    while outputs.shape[1] < max_length and not (outputs == END).any(1).all():
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(1)
        outputs = torch.cat([outputs, tokens[:, None]], 1)
    return [_before_end(row) for row in outputs]


def _before_end(row: Int[Tensor, " time"]) -> list[int]:
    ids: list[int] = row.tolist()
    return ids[: ids.index(END)] if END in ids else ids


def _attention(model: Any, name: str) -> MultiHead:
    """The module of an attention: dec.0.cross is model.decoder[0].cross_attention."""
    stack, layer, kind = name.split(".")
    layers = {"enc": model.encoder, "dec": model.decoder}[stack]
    found: MultiHead = getattr(layers[int(layer)], f"{kind}_attention")
    return found


def _scale(keep: Float[Tensor, "copy 1 head 1"]) -> Any:
    copies, heads = keep.shape[0], keep.shape[2]

    def hook(_: nn.Module, arguments: tuple[Tensor]) -> Tensor:
        (joined,) = arguments
        contexts = joined.view(copies, -1, heads, joined.shape[-1] // heads)
        return (contexts * keep).view_as(joined)

    return hook


def _zero_context(_: nn.Module, arguments: Any, context: Ragged | Tensor) -> Ragged | Tensor:
    if isinstance(context, Ragged):
        return context.like(torch.zeros_like(context.values))
    return torch.zeros_like(context)
