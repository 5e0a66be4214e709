"""Graph: the model as blocks, each with the tensors that arise in it and the parameters it reads.

Both are read off a short trace, so that the picture of a model and what happens in it cannot differ.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.explore.models import Offered
from regard.text import UNKNOWN

if TYPE_CHECKING:
    from regard.text.tokenizers import Tokenizer
    from regard.trace import Trace


class Kind(NamedTuple):
    """What names of tensors belong to a kind of block. `{}` in what follows is the block's own id."""

    pattern: str
    id: str
    title: str
    kind: str
    thumbnail: str


ATTENTION, FFN = "{}.weights", "{}.out"
KINDS = [  # the first that fits
    Kind(r"(src|tgt)\..*", r"\1", "Embedding", "embedding", "{}.sum"),
    Kind(r"enc\.(\d+)\.resid1", r"enc.\1.self", "Self-attention", "attention", ATTENTION),
    Kind(r"enc\.(\d+)\.resid2", r"enc.\1.ffn", "Feed-forward", "ffn", FFN),
    Kind(r"dec\.(\d+)\.resid1", r"dec.\1.self", "Self-attention", "attention", ATTENTION),
    Kind(r"dec\.(\d+)\.resid2", r"dec.\1.cross", "Cross-attention", "attention", ATTENTION),
    Kind(r"dec\.(\d+)\.resid3", r"dec.\1.ffn", "Feed-forward", "ffn", FFN),
    Kind(r"((enc|dec)\.\d+\.self)\..*", r"\1", "Self-attention", "attention", ATTENTION),
    Kind(r"(dec\.\d+\.cross)\..*", r"\1", "Cross-attention", "attention", ATTENTION),
    Kind(r"((enc|dec)\.\d+\.ffn)\..*", r"\1", "Feed-forward", "ffn", FFN),
    Kind(r"((enc|dec)\.(\d+\.)?norm\d?)", r"\1", "Norm", "norm", "{}"),
    Kind(r"attn\..*", "attn", "Attention", "attention", ATTENTION),
    Kind(r"out\..*", "out", "Output", "output", "out.logprobs"),
    Kind(r"((enc|dec)\.\d+)\..*", r"\1", "Recurrent layer", "recurrent", "{}.h"),
    Kind(r"enc\.(h|summary)", "enc.states", "Encoder states", "recurrent", "enc.h"),
    Kind(r"dec\.(first|start)", "dec.start", "First state", "recurrent", "dec.start"),
    Kind(r"dec\.input", "dec.input", "Token and context", "recurrent", "dec.input"),
    Kind(r"dec\.h", "dec.states", "Decoder states", "recurrent", "dec.h"),
]
STACKS = {"src": "source", "enc": "encoder", "tgt": "target", "dec": "decoder", "attn": "decoder", "out": "output"}


def graph(model: Offered) -> dict[str, Any]:
    """The whole picture."""
    from regard.trace import record

    with model.turn() as pipeline:
        trace = record(pipeline, _word(pipeline.bundle.source), target="")
    shapes = {name: list(tensor.shape) for name, tensor in pipeline.model.state_dict().items()}
    return {
        "family": model.family,
        "settings": pipeline.bundle.settings.model_dump(mode="json"),
        "vocabulary": model.sizes,
        "parameters": model.entry["parameters"],
        "blocks": blocks(trace, shapes),
    }


def blocks(trace: Trace, shapes: dict[str, list[int]]) -> list[dict[str, Any]]:
    """Every name of a trace in one block, in the order in which they arise."""
    made: dict[str, dict[str, Any]] = {}
    for name in trace.names:
        id, kind = _block(name)
        layer = re.search(r"\.(\d+)", id)
        block = made.setdefault(
            id,
            {
                "id": id,
                "title": kind.title,
                "stack": STACKS[id.partition(".")[0]],
                "layer": int(layer[1]) if layer else None,
                "kind": kind.kind,
                "thumbnail": kind.thumbnail.format(id),
                "names": [],
                "parameters": {},
            },
        )
        block["names"].append(name)
        block["parameters"] |= {one: shapes[one] for one in trace.operation(name).weights}
    for block in made.values():
        if block["thumbnail"] not in block["names"]:  # such as the sum of an embedding to which nothing is added
            block["thumbnail"] = block["names"][-1]
        block["parameters"] = [{"name": name, "shape": shape} for name, shape in block["parameters"].items()]
        block["count"] = sum(math.prod(parameter["shape"]) for parameter in block["parameters"])
    return list(made.values())


def _block(name: str) -> tuple[str, Kind]:
    for kind in KINDS:
        if found := re.fullmatch(kind.pattern, name):
            return found.expand(kind.id), kind
    raise AssertionError(f"no block for {name}")


def _word(tokenizer: Tokenizer) -> str:
    """Any text of the vocabulary: names and parameters do not depend on it."""
    labels = (tokenizer.label(id) for id in range(len(tokenizer)))
    return next(word for word in labels if (ids := tokenizer.encode(word.strip())) and UNKNOWN not in ids)
