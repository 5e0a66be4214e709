"""Several position encodings of one sentence, for the sizes of the open model.

Each encoding is built by `regard.positions`; that of the open model is the model's own, with its
learned numbers. Learned encodings of a new model have their initial values.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.axes import Site
from regard.errors import RegardError
from regard.explore.trace_store import StoredTrace, check_model
from regard.positions import (
    POSITIONS,
    T5,
    AdditivePosition,
    Alibi,
    BiasPosition,
    Distance,
    Position,
    Rotary,
    RotaryPosition,
    Sinusoidal,
    position,
)

ENCODINGS = ("sinusoidal", "learned", "distance", "t5", "rotary", "alibi")
SEED = 1
MAX_POSITIONS = 64  # of a longer sentence, the first ones


def position_encodings(stored: StoredTrace, side: str) -> dict[str, Any]:
    """Values and scores of every encoding for the positions of one side of a trace."""
    check_model(stored)
    pipeline = stored.model.pipeline
    settings: Any = pipeline.bundle.settings  # of a family: the explorer opens no ensembles
    heads = max([one.heads for one in stored.trace.attentions], default=1)
    queries = [f"{one.name}.q" for one in stored.trace.attentions]
    dims = [stored.trace[name].shape[-1] for name in queries if name in stored.trace]
    dim = dims[0] if dims else settings.width // heads
    count = min(len(stored.trace.pieces(side)), MAX_POSITIONS)
    sizes = {"width": settings.width, "heads": heads, "dim": dim, "causal": side == "target"}
    stack = "encoder" if side == "source" else "decoder"
    own = [
        part
        for name, part in pipeline.model.named_modules()
        if isinstance(part, Position) and name.startswith((stack, side))
    ] + [part for part in pipeline.model.modules() if isinstance(part, Position)]
    found = []
    for name in ENCODINGS:
        kind = POSITIONS.choose(name)
        used = next((part for part in own if type(part) is kind), None)
        try:
            found.append(_describe(name, used or _new(name, sizes), used is not None, count, sizes))
        except RegardError as error:  # such as a rotation of an odd number of dims
            found.append({"name": name, "error": str(error)})
    return {**sizes, "count": count, "encodings": found}


def _new(name: str, sizes: dict[str, Any]) -> Position:
    """A new encoding; random initial values are the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return position(name, **sizes)


@torch.no_grad()
def _describe(
    name: str, part: Position, own: bool, count: int, sizes: dict[str, Any]
) -> dict[str, Any]:
    places = torch.arange(count)
    facts: dict[str, Any] = {"name": name, "formula": part.formula, "paper": part.paper}
    facts |= {"own": own, "learned": any(True for _ in part.parameters())}
    facts |= {"values": None, "scores": None, **_constants(part, count)}
    if isinstance(part, AdditivePosition):
        values = part(places).float()
        scores = (values @ values.T / math.sqrt(sizes["width"]))[None]
        return {**facts, "values": values.tolist(), "scores": scores.tolist()}
    if isinstance(part, RotaryPosition):
        values = part.rotate(torch.ones(count, sizes["dim"]), places)
        scores = (values @ values.T / math.sqrt(sizes["dim"]))[None]
        return {**facts, "values": values.tolist(), "scores": scores.tolist()}
    assert isinstance(part, BiasPosition)
    scores = _biases(part, count, sizes["heads"])
    return {**facts, "scores": scores.tolist()}


def _biases(part: BiasPosition, count: int, heads: int) -> Float[Tensor, "head query key"]:
    """What is added to each score."""
    blank = torch.zeros(1, heads, count, 1)
    found = part(torch.zeros(1, heads, count, count), Site.grid(blank, blank))
    return found.float().expand(1, heads, count, count)[0]


def _constants(part: Position, count: int) -> dict[str, Any]:
    """The constants of the formula, for the arithmetic of single numbers."""
    ahead = torch.arange(count) - torch.arange(count)[:, None]  # key − query
    if isinstance(part, Sinusoidal):
        return {"frequencies": part.frequencies, "order": part.order}
    if isinstance(part, Rotary):
        facts = {"frequencies": part.frequencies, "order": part.pairs}
        return {**facts, "rotated": part.rotated_dims}
    if isinstance(part, Alibi):
        return {"slopes": part.slopes.tolist()}
    if isinstance(part, Distance):
        limit = part.max_distance
        return {"index": (ahead.clamp(-limit, limit) + limit).tolist(), "scale": part.scale}
    if isinstance(part, T5):
        return {"index": part.bucket(ahead).tolist(), "scale": 1.0}
    return {}
