"""What `auto` decides: the model's size, the tokens to a step, the learning rate and the length of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from regard.config import PRESETS, Model, Recurrent, Train, Transformer, parse
from regard.errors import RegardError, choose
from regard.train.distributed import World
from regard.train.prepare import Prepared


@dataclass(frozen=True)
class Plan:
    """The decisions, and why, in sentences."""

    name: str
    model: Transformer | Recurrent
    budget: int
    rate: float
    epochs: float
    decisions: list[str]


def plan(family: str, size: str, overrides: dict[str, Any], train: Train, data: Prepared, world: World) -> Plan:
    """Fill in what was left to us, from the size of the data and the machine."""
    given = [name for name in ("minutes", "steps", "epochs") if getattr(train, name) is not None]
    if len(given) > 1:
        raise RegardError(f"of minutes, steps and epochs give one; got {' and '.join(given)}")
    tokens = int(data.pairs.source_lengths.sum() + data.pairs.target_lengths.sum())
    presets = choose(PRESETS, family, "family")
    decisions = []
    if size == "auto":
        size = _size(tokens, world)
        decisions.append(f"size {size}: {tokens:,} tokens to learn from, on {world.device.type}")
    sizes = choose(presets, size, "size")
    dropout = {} if "dropout" in overrides else {"dropout": _dropout(tokens, size, train)}
    tied = {} if "tied" in overrides or data.exam.source is not data.exam.target else {"tied": "all"}
    model = parse(Model, {"kind": family, **sizes, **dropout, **tied, **overrides}, "model")
    budget = train.budget or _budget(tokens, world)
    rate = train.rate or 3e-3 * math.sqrt(64 / model.width)
    epochs = train.epochs or min(40.0, max(3.0, 60e6 / tokens))
    return Plan(f"{family} {size}", model, budget, rate, epochs, decisions)


def _size(tokens: int, world: World) -> str:
    """Small data cannot fill a large model, and a CPU cannot wait for one."""
    if world.device.type == "cpu":
        return "tiny"
    return "small" if tokens < 20e6 else "base"


def _dropout(tokens: int, size: str, train: Train) -> float:
    """A run that sees its data a few times cannot overfit it; a long one of little data can."""
    if train.minutes is not None and size == "tiny":
        return 0.0
    return 0.1 if tokens > 20e6 or size == "tiny" else 0.3


def _budget(tokens: int, world: World) -> int:
    """Small steps learn more from each token, large ones fill a GPU."""
    if world.device.type == "cpu":
        return 1_024
    return int(min(25_000, max(4_096, tokens // 200)))
