"""The architecture of a model: its blocks with their tensors and parameters.

Both are read from a short trace, so that the diagram always matches the computation.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.explore.model_store import ServedModel
from regard.text import UNKNOWN

if TYPE_CHECKING:
    from regard.text.tokenizers import Tokenizer
    from regard.trace import Trace


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
        if ids and UNKNOWN not in ids:
            return text
    raise AssertionError("a vocabulary without a single text")
