"""A trace as JSON: everything except its tensors; and the tokens of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.bundle import Bundle
from regard.explore.messages import TokenizeRequest
from regard.explore.trace_store import StoredTrace
from regard.text import BEGIN, END

if TYPE_CHECKING:
    from regard.text.tokenizers import Piece
    from regard.trace import Trace


def describe(stored: StoredTrace) -> dict[str, Any]:
    """The description of a trace that the page needs before it requests tensors."""
    trace, request = stored.trace, stored.request
    output = {
        "text": trace.answer.text,
        "logp": float(trace["out.total"]),
        "score": float(trace["out.score"]),
    }
    check = {"max_delta": trace.check, "dtype": "float32", "against": "fast path"}
    edits = zip(request.edits, trace.edits, strict=True)
    return {
        "id": stored.id,
        "model": stored.model.id,
        "source": request.source,
        "teacher_forced": request.target is not None,
        "tokens": {
            "source": describe_tokens(trace.source),
            "target": describe_tokens(trace.target),
        },
        "next_tokens": _next_tokens(trace),
        "predicted_tokens": _predicted_tokens(stored),
        "output": output,
        "attentions": describe_attentions(trace),
        "tensors": [_describe_tensor(trace, name) for name in trace.names],
        "edits": [{**given, "label": made.label} for given, made in edits],
        "check": None if trace.check is None else check,
        "seconds": round(stored.seconds, 4),
    }


def tokenize(bundle: Bundle, request: TokenizeRequest) -> dict[str, Any]:
    """The tokens of a text as the model reads it: a source without surrounding white space."""
    tokenizer = bundle.source if request.side == "source" else bundle.target
    text = request.text.strip() if request.side == "source" else request.text
    shift = request.text.index(text)
    pieces = [
        piece._replace(start=piece.start + shift, end=piece.end + shift)
        for piece in tokenizer.pieces(text)
    ]
    return {"tokens": describe_tokens(pieces), "unknown": tokenizer.unknown_symbols(text)}


def describe_tokens(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """Tokens with their positions and character offsets; begin and end are special tokens."""
    return [
        {
            "position": position,
            "id": piece.id,
            "text": piece.text,
            "start": piece.start,
            "end": piece.end,
            "special": piece.id in (BEGIN, END),
        }
        for position, piece in enumerate(pieces)
    ]


def describe_attentions(trace: Trace) -> list[dict[str, Any]]:
    """Every attention of the model with its recorded stages."""
    fields = ("name", "kind", "layer", "heads", "query", "key")
    return [
        {**{field: getattr(one, field) for field in fields}, "stages": list(one.stages)}
        for one in trace.attentions
    ]


def finite_range(tensor: Tensor) -> tuple[float, float]:
    """The smallest and the largest finite number: the limits of a colour scale."""
    if not tensor.numel():
        return 0.0, 0.0
    low, high = (float(end) for end in torch.aminmax(tensor))
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    return finite_range(tensor[tensor.isfinite()])


def _next_tokens(trace: Trace) -> list[dict[str, Any]]:
    """The token that follows each decoder input, with its log-probability."""
    pairs = zip(trace.following, trace["out.chosen"], strict=True)
    return [{"id": piece.id, "text": piece.text, "logp": float(logp)} for piece, logp in pairs]


def _predicted_tokens(stored: StoredTrace) -> list[dict[str, Any]]:
    """The most probable token after each decoder input."""
    logps, label = stored.trace["out.logprobs"], stored.model.pipeline.bundle.target.label
    pairs = zip(logps.argmax(1).tolist(), logps, strict=True)
    return [{"id": id, "text": label(id), "logp": float(row[id])} for id, row in pairs]


def _describe_tensor(trace: Trace, name: str) -> dict[str, Any]:
    tensor, operation = trace[name], trace.operation(name)
    recorded = trace.names
    low, high = finite_range(tensor)
    return {
        "name": name,
        "shape": list(tensor.shape),
        "axes": list(trace.axes(name)),
        "min": low,
        "max": high,
        "operation": operation.kind,
        "formula": operation.formula,
        "inputs": [one for one in operation.inputs if one in recorded],
        "parameters": list(operation.weights),
    }
