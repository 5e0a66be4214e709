"""Sweep: each head cut in turn, many at once. What the model says then, and what it still thinks of what it said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.explore.models import Models
from regard.explore.requests import TOKENS, Ask, Decode, Sweep
from regard.explore.traces import Traces
from regard.models import Model
from regard.models.recurrent import Recurrent
from regard.ragged import Ragged
from regard.search.length_batching import length_limits
from regard.text import BEGIN, END
from regard.trace.attention_analysis import TOGETHER, copies, scored

if TYPE_CHECKING:
    from regard.trace import AttentionBlock

Head = tuple[str, int]  # an attention and the number of its head


@torch.no_grad()
def sweep(models: Models, traces: Traces, asked: Sweep) -> dict[str, Any]:
    """`effect` is the log-probability that the text loses without the head: log p(text) − log p(text | head cut).

    All answers, the whole model's too, are searched for greedily: only then does a change come from the head."""
    model, greedy = models[asked.model], Decode(method="greedy")
    base = traces.ask(Ask(model=asked.model, source=asked.source, target=asked.target, decode=greedy)).trace
    heads = [(one.name, head) for one in base.attentions for head in range(one.heads)]
    source, said = [piece.id for piece in base.source], [piece.id for piece in base.following]
    count, logp, found = max(1, TOGETHER // (len(source) + len(said))), float(base["out.total"]), []
    with model.turn() as pipeline:
        longest = min(TOKENS, int(length_limits(torch.tensor([len(source)]), **pipeline.length_limits)[0]))
        for start in range(0, len(heads), count):
            some = heads[start : start + count]
            with cut(pipeline.model, base.attentions, some):
                left = scored(pipeline.model, source, said, len(some)).sum(1)
                texts = answered(pipeline.model, source, len(some), longest)
            for (attention, head), rest, ids in zip(some, left.tolist(), texts, strict=True):
                place = {"attention": attention, "head": head, "text": pipeline.bundle.target.decode(ids)}
                found.append({**place, "logp": rest, "effect": logp - rest})
    return {"base": {"text": base.answer.text, "logp": logp}, "heads": found}


@contextmanager
def cut(model: Model, attentions: Sequence[AttentionBlock], heads: Sequence[Head]) -> Iterator[None]:
    """While this is open, copy i of a batch of copies runs without head i: its context is zero, before W_O."""
    hooks = []
    for one in attentions:
        kept = torch.ones(len(heads), 1, one.heads, 1)
        for copy, (name, head) in enumerate(heads):
            kept[copy, :, head] = float(name != one.name)
        if isinstance(model, Recurrent):  # its one head is the one that is cut
            assert model.attention is not None
            hooks.append(model.attention.attention.register_forward_hook(_nothing))
        else:
            hooks.append(_attention(model, one.name).out.register_forward_pre_hook(_without(kept)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def answered(model: Model, source: Sequence[int], count: int, longest: int) -> list[list[int]]:
    """The greedy answer of each copy. None leaves before all have ended, so that copy i stays in row i."""
    state = model.start(model.encode(copies(source, count)))
    tokens, said = torch.full((count,), BEGIN), torch.empty(count, 0, dtype=torch.long)
    while said.shape[1] < longest and not (said == END).any(1).all():
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(1)
        said = torch.cat([said, tokens[:, None]], 1)
    return [_before_end(row) for row in said]


def _before_end(row: Int[Tensor, " time"]) -> list[int]:
    ids: list[int] = row.tolist()
    return ids[: ids.index(END)] if END in ids else ids


def _attention(model: Any, name: str) -> MultiHead:
    """dec.0.cross is model.decoder_layers[0].cross_attention."""
    stack, layer, kind = name.split(".")
    found: MultiHead = getattr({"enc": model.encoder, "dec": model.decoder}[stack][int(layer)], f"{kind}_attention")
    return found


def _without(kept: Float[Tensor, "copy 1 head 1"]) -> Any:
    def hook(_: nn.Module, arguments: tuple[Tensor]) -> Tensor:
        (joined,) = arguments
        return (joined.view(len(kept), -1, kept.shape[2], joined.shape[-1] // kept.shape[2]) * kept).view_as(joined)

    return hook


def _nothing(_: nn.Module, arguments: Any, context: Ragged | Tensor) -> Ragged | Tensor:
    return context.like(torch.zeros_like(context.values)) if isinstance(context, Ragged) else torch.zeros_like(context)
