"""A trace as JSON: everything except its tensors; the tokens of a text; the graph of a model.

The blocks of the graph are read from a short trace, so that the diagram always matches the
computation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from regard.bundle import Bundle
from regard.explore.messages import TokenizeRequest
from regard.explore.model_store import ServedModel
from regard.explore.trace_store import StoredTrace

if TYPE_CHECKING:
    from regard.text.tokenizers import Piece, Tokenizer
    from regard.trace import Trace
    from regard.trace.attention_edits import Change


def describe(stored: StoredTrace) -> dict[str, Any]:
    """The description of a trace that the page needs before it requests tensors."""
    trace, request = stored.trace, stored.request
    output = {
        "text": trace.answer.text,
        "logp": float(trace["out.total"]) if "out.total" in trace else math.nan,
        "score": float(trace["out.score"]) if "out.score" in trace else math.nan,
    }
    check: dict[str, Any] = {"max_delta": trace.check, "dtype": "float32", "against": "fast path"}
    facts = stored.model.card.get("import", {})
    if "largest_difference" in facts:  # of an imported model, from the library's own logits
        check["library"] = {"name": facts["check"], "max_delta": facts["largest_difference"]}
    edits = zip(request.edits, trace.edits, strict=True)
    return {
        "id": stored.id,
        "model": stored.model.id,
        "source": request.source,
        "teacher_forced": request.target is not None,
        "tokens": {side: trace_tokens(trace, side) for side in ("source", "target")},
        "unknown": {
            "source": list(trace.answer.unknown),
            "target": _unknown_target(stored),
        },
        "next_tokens": _next_tokens(trace),
        "predicted_tokens": _predicted_tokens(stored),
        "output": output,
        "attentions": describe_attentions(trace),
        "tensors": [_describe_tensor(trace, name) for name in trace.names],
        "edits": [{**given, "label": _edit_label(stored, made)} for given, made in edits],
        "check": None if trace.check is None else check,
        "checkpoint": request.checkpoint,
        "partial": not trace.has_model,
        "seconds": round(stored.seconds, 4),
    }


def _unknown_target(stored: StoredTrace) -> list[str]:
    """The unknown symbols of a given target; none without a model."""
    target = stored.request.target
    if target is None or not stored.trace.has_model:
        return []
    return stored.model.pipeline.bundle.target.unknown_symbols(target)


def _edit_label(stored: StoredTrace, edit: Change) -> str:
    """The edit in words, with the text of a forced token instead of its id."""
    from regard.trace.edits import ForceToken

    if not isinstance(edit, ForceToken):
        return edit.label
    text = stored.model.pipeline.bundle.target.label(edit.token)
    return f"“{text}” forced at step {edit.step}"


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


def trace_tokens(trace: Trace, side: str) -> list[dict[str, Any]]:
    """The tokens of one side of a trace; those that its template adds are special."""
    template = trace.template
    special = template.source([]) if side == "source" else (*template.start, template.end)
    return describe_tokens(trace.pieces(side), special)


def describe_tokens(pieces: Sequence[Piece], special: Collection[int] = ()) -> list[dict[str, Any]]:
    """Tokens with their positions and character offsets; `special` are ids of special tokens."""
    return [
        {
            "position": position,
            "id": piece.id,
            "text": piece.text,
            "start": piece.start,
            "end": piece.end,
            "special": piece.id in special,
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
    unknown = [math.nan] * len(trace.following)
    logps = trace["out.chosen"].tolist() if "out.chosen" in trace else unknown
    pairs = zip(trace.following, logps, strict=True)
    return [{"id": piece.id, "text": piece.text, "logp": logp} for piece, logp in pairs]


def _predicted_tokens(stored: StoredTrace) -> list[dict[str, Any]]:
    """The most probable token after each decoder input; the given one if that is not known."""
    trace = stored.trace
    if "out.logprobs" in trace:
        logps, ids = trace["out.logprobs"].max(1)
    elif "out.top.ids" in trace:
        logps, ids = trace["out.top.logprobs"][:, 0], trace["out.top.ids"][:, 0]
    else:
        return _next_tokens(trace)
    label, pairs = stored.model.token_label, zip(ids.tolist(), logps, strict=True)
    return [{"id": int(id), "text": label(int(id)), "logp": float(logp)} for id, logp in pairs]


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


class BlockRule(NamedTuple):
    """Assigns tensors whose names match `pattern` to a block. `{}` in `thumbnail` is its id."""

    pattern: str
    id: str
    title: str
    kind: str
    thumbnail: str


ATTENTION, FFN = "{}.weights", "{}.out"
RULES = [  # the first match applies
    BlockRule(r"(src|tgt)\..*", r"\1", "Embedding", "embedding", "{}.sum"),
    BlockRule(r"enc\.(\d+)\.resid1", r"enc.\1.self", "Self-attention", "attention", ATTENTION),
    BlockRule(r"enc\.(\d+)\.resid2", r"enc.\1.ffn", "Feed-forward", "ffn", FFN),
    BlockRule(r"dec\.(\d+)\.resid1", r"dec.\1.self", "Self-attention", "attention", ATTENTION),
    BlockRule(r"dec\.(\d+)\.resid2", r"dec.\1.cross", "Cross-attention", "attention", ATTENTION),
    BlockRule(r"dec\.(\d+)\.resid3", r"dec.\1.ffn", "Feed-forward", "ffn", FFN),
    BlockRule(r"((enc|dec)\.\d+\.self)\..*", r"\1", "Self-attention", "attention", ATTENTION),
    BlockRule(r"(dec\.\d+\.cross)\..*", r"\1", "Cross-attention", "attention", ATTENTION),
    BlockRule(r"((enc|dec)\.\d+\.ffn)\..*", r"\1", "Feed-forward", "ffn", FFN),
    BlockRule(r"((enc|dec)\.(\d+\.)?norm\d?)", r"\1", "Norm", "norm", "{}"),
    BlockRule(r"attn\..*", "attn", "Attention", "attention", ATTENTION),
    BlockRule(r"out\..*", "out", "Output", "output", "out.logprobs"),
    BlockRule(r"((enc|dec)\.\d+)\..*", r"\1", "Recurrent layer", "recurrent", "{}.h"),
    BlockRule(r"enc\.(h|summary)", "enc.states", "Encoder states", "recurrent", "enc.h"),
    BlockRule(r"dec\.(first|start)", "dec.start", "First state", "recurrent", "dec.start"),
    BlockRule(r"dec\.input", "dec.input", "Token and context", "recurrent", "dec.input"),
    BlockRule(r"dec\.h", "dec.states", "Decoder states", "recurrent", "dec.h"),
]
STACKS = {
    "src": "source",
    "enc": "encoder",
    "tgt": "target",
    "dec": "decoder",
    "attn": "decoder",
    "out": "output",
}


def model_graph(model: ServedModel) -> dict[str, Any]:
    """The settings, the vocabulary sizes, the parameter count and the blocks of a model."""
    from regard.trace import record

    with model.exclusive() as pipeline:
        trace = record(pipeline, _any_text(pipeline.bundle.source), target="")
    shapes = {name: list(tensor.shape) for name, tensor in pipeline.model.state_dict().items()}
    return {
        "family": model.family,
        "settings": pipeline.bundle.settings.model_dump(mode="json"),
        "vocabulary": model.vocabulary_sizes,
        "parameters": model.entry["parameters"],
        "blocks": blocks(trace, shapes),
    }


def blocks(trace: Trace, shapes: dict[str, list[int]]) -> list[dict[str, Any]]:
    """All blocks in order of computation; every tensor of the trace belongs to one."""
    made: dict[str, dict[str, Any]] = {}
    for name in trace.names:
        id, rule = _block(name)
        block = made.setdefault(id, _new_block(id, rule))
        block["names"].append(name)
        block["parameters"] |= {one: shapes[one] for one in trace.operation(name).weights}
    for block in made.values():
        if block["thumbnail"] not in block["names"]:  # e.g. no sum without positions
            block["thumbnail"] = block["names"][-1]
        found = block["parameters"].items()
        block["parameters"] = [{"name": name, "shape": shape} for name, shape in found]
        block["count"] = sum(math.prod(one["shape"]) for one in block["parameters"])
    return list(made.values())


def _new_block(id: str, rule: BlockRule) -> dict[str, Any]:
    layer = re.search(r"\.(\d+)", id)
    return {
        "id": id,
        "title": rule.title,
        "stack": STACKS[id.partition(".")[0]],
        "layer": int(layer[1]) if layer else None,
        "kind": rule.kind,
        "thumbnail": rule.thumbnail.format(id),
        "names": [],
        "parameters": {},
    }


def _block(name: str) -> tuple[str, BlockRule]:
    for rule in RULES:
        if match := re.fullmatch(rule.pattern, name):
            return match.expand(rule.id), rule
    raise AssertionError(f"no block for {name}")


def _any_text(tokenizer: Tokenizer) -> str:
    """A text without unknown tokens; names and parameters do not depend on the text."""
    for id in range(len(tokenizer)):
        text = tokenizer.label(id)
        ids = tokenizer.encode(text.strip())
        if ids and tokenizer.unknown not in ids:
            return text
    raise AssertionError("a vocabulary without a single text")
