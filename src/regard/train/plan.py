"""What `auto` decides: the model's size, the tokens to a step, the learning rate and the length of a run."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.config import PRESETS, Model, Recurrent, Text, Train, Transformer, parse
from regard.errors import RegardError, choose
from regard.models import build
from regard.train.distributed import World
from regard.train.prepare import Prepared

LITTLE = 20e6  # tokens below which a model can learn its data by heart
UNSEEN = {"save_seconds", "capture"}  # settings that may change between one part of a run and the next


@dataclass(frozen=True)
class Plan:
    """The decisions, and why, in sentences."""

    name: str
    model: Transformer | Recurrent
    budget: int
    rate: float
    epochs: float
    consistency: float
    decisions: list[str]


def check(family: str, size: str, overrides: dict[str, Any], train: Train) -> None:
    """Raise for what is wrong whatever the data are, before a long look at them."""
    given = [name for name in ("minutes", "steps", "epochs") if getattr(train, name) is not None]
    if len(given) > 1:
        raise RegardError(f"of minutes, steps and epochs give one; got {' and '.join(given)}")
    presets = choose(PRESETS, family, "family")
    sizes = choose({"auto": presets["tiny"], **presets}, size, "size")
    with torch.device("meta"):  # shapes without numbers
        build(parse(Model, {"kind": family, **sizes, **overrides}, "model"), 8, 8)


def plan(family: str, size: str, overrides: dict[str, Any], train: Train, data: Prepared, world: World) -> Plan:
    """Fill in what was left to us, from the size of the data and the machine."""
    tokens = int(data.pairs.source_lengths.sum() + data.pairs.target_lengths.sum())
    decisions = []
    if size == "auto":
        size = _size(tokens, world)
        decisions.append(f"size {size}: {tokens:,} tokens to learn from, on {world.device.type}")
    sizes = PRESETS[family][size]
    dropout = {} if "dropout" in overrides else {"dropout": _dropout(tokens, size, train)}
    tied = {} if "tied" in overrides or data.exam.source is not data.exam.target else {"tied": "all"}
    model = parse(Model, {"kind": family, **sizes, **dropout, **tied, **overrides}, "model")
    with torch.device("meta"):  # what cannot be built is refused before anything is written down
        build(model, len(data.exam.source), len(data.exam.target))
    budget = train.budget or _budget(tokens, world)
    peak = 7e-3 if train.optimizer == "muon" else 3e-3  # found at width 64; wider models want less
    rate = train.rate or peak * math.sqrt(64 / model.width)
    consistency = _consistency(tokens, train, world) if train.consistency is None else train.consistency
    if consistency and train.consistency is None:
        decisions.append("every pair is read twice, with other dropout (train.consistency = 1): little data, and a GPU")
    epochs = train.epochs or _epochs(tokens, world)
    return Plan(f"{family} {size}", model, budget, rate, epochs, consistency, decisions)


def _size(tokens: int, world: World) -> str:
    """Small data cannot fill a large model, and a CPU cannot wait for one."""
    if world.device.type == "cpu":
        return "tiny"
    return "small" if tokens < LITTLE else "base"


def _dropout(tokens: int, size: str, train: Train) -> float:
    """A run that sees its data a few times cannot overfit it; a long one of little data can."""
    if train.minutes is not None and size == "tiny":
        return 0.0
    return 0.1 if tokens > LITTLE or size == "tiny" else 0.3


def _budget(tokens: int, world: World) -> int:
    """Small steps learn more from each token, large ones fill a GPU."""
    if world.device.type == "cpu":
        return 2_048
    return int(min(25_000, max(4_096, tokens // 200)))


def _consistency(tokens: int, train: Train, world: World) -> float:
    """Reading twice made every small set better (docs/quality.md) and steps twice as dear: where time is no matter."""
    return 1.0 if world.device.type == "cuda" and tokens < LITTLE and train.minutes is None else 0.0


def _epochs(tokens: int, world: World) -> float:
    """Minutes on a large GPU, an hour on a CPU."""
    return min(40.0, max(3.0, (120e6 if world.device.type == "cuda" else 60e6) / tokens))


def same(path: Path, decided: Plan, train: Train, text: Text) -> None:
    """The settings of a run may not change under it; what differs is named."""
    groups = {"model": decided.model.model_dump(), "train": train.model_dump(exclude=UNSEEN), "text": text.model_dump()}
    groups["train"] |= {"budget": decided.budget, "consistency": decided.consistency}
    now = json.loads(json.dumps(groups))
    if path.exists():
        was = json.loads(path.read_text())
        changed = [
            f"{group}.{name} was {was[group].get(name)!r} and is {now[group].get(name)!r}"
            for group in now
            for name in {**was[group], **now[group]}
            if was[group].get(name) != now[group].get(name)
        ]
        if changed:
            raise RegardError(
                f"this run began with other settings: {'; '.join(changed)}. Use the old ones, or another --out"
            )
        return
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(now, indent=1))
    os.replace(partial, path)
