"""Describe: a trace as JSON, everything but its tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.bundle import Bundle
from regard.explore.requests import Tokenise
from regard.explore.traces import Held
from regard.text import BEGIN, END

if TYPE_CHECKING:
    from regard.text.tokenizers import Piece
    from regard.trace import Trace


def described(held: Held) -> dict[str, Any]:
    """What the page needs to know before it asks for tensors."""
    trace, logps = held.trace, held.trace["out.logprobs"]
    best, label = logps.argmax(1), held.model.pipeline.bundle.target.label
    answer = trace.answer
    return {
        "id": held.id,
        "model": held.model.id,
        "source": held.ask.source,
        "given": held.ask.target is not None,
        "tokens": {"source": tokens(trace.source), "target": tokens(trace.target)},
        "following": [
            {"id": piece.id, "text": piece.text, "logp": float(logp)}
            for piece, logp in zip(trace.following, trace["out.chosen"], strict=True)
        ],
        "predicted": [
            {"id": id, "text": label(id), "logp": float(row[id])} for id, row in zip(best.tolist(), logps, strict=True)
        ],
        "output": {
            "text": answer.text,
            "logp": float(trace["out.total"]),
            "score": float(trace["out.score"]),
        },
        "attentions": attentions(trace),
        "tensors": [_tensor(trace, name) for name in trace.names],
        "edits": [{**given, "label": made.label} for given, made in zip(held.ask.edits, trace.edits, strict=True)],
        "check": None
        if trace.check is None
        else {"max_delta": trace.check, "dtype": "float32", "against": "fast path"},
        "seconds": round(held.seconds, 4),
    }


def tokenised(bundle: Bundle, asked: Tokenise) -> dict[str, Any]:
    """A text in pieces, as the model would read it: a source without white space around it."""
    tokenizer = bundle.source if asked.side == "source" else bundle.target
    text = asked.text.strip() if asked.side == "source" else asked.text
    shift = asked.text.index(text)
    pieces = [piece._replace(start=piece.start + shift, end=piece.end + shift) for piece in tokenizer.pieces(text)]
    return {"tokens": tokens(pieces), "unknown": tokenizer.unknown_symbols(text)}


def tokens(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """Pieces with their places; begin and end are special."""
    return [
        {"position": i, "id": p.id, "text": p.text, "start": p.start, "end": p.end, "special": p.id in (BEGIN, END)}
        for i, p in enumerate(pieces)
    ]


def attentions(trace: Trace) -> list[dict[str, Any]]:
    """Every attention of the model, with what can be seen of it."""
    names = ("name", "kind", "layer", "heads", "query", "key")
    return [{**{name: getattr(one, name) for name in names}, "stages": list(one.stages)} for one in trace.attentions]


def extent(tensor: Tensor) -> tuple[float, float]:
    """The least and the greatest finite number: the ends of a colour scale."""
    if not tensor.numel():
        return 0.0, 0.0
    low, high = (float(end) for end in torch.aminmax(tensor))
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    finite = tensor[tensor.isfinite()]
    return extent(finite)


def _tensor(trace: Trace, name: str) -> dict[str, Any]:
    tensor, operation, known = trace[name], trace.operation(name), trace.names
    low, high = extent(tensor)
    return {
        "name": name,
        "shape": list(tensor.shape),
        "axes": list(trace.axes(name)),
        "min": low,
        "max": high,
        "operation": operation.kind,
        "formula": operation.formula,
        "inputs": [one for one in operation.inputs if one in known],
        "parameters": list(operation.weights),
    }
