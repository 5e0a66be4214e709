"""What `auto` decides: the model's size, the tokens to a step, the learning rate, what keeps a model from learning by
heart, and the length of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.config import PRESETS, ModelSettings, RecurrentSettings, TrainSettings, TransformerSettings, parse
from regard.device import resolve_precision
from regard.errors import RegardError, choose
from regard.models import build
from regard.train.distributed import World
from regard.train.prepare import Prepared

ENOUGH = 20e6  # tokens that a base model wants
LITTLE = 5e6  # tokens below which a run reads its data so often that it may learn them by heart
SCANT = 2e6  # tokens below which running text hardly says how its words are used


@dataclass(frozen=True)
class Plan:
    """The decisions: the model, what was asked of training with all that was left to us filled in; and why, in
    sentences."""

    name: str
    model: TransformerSettings | RecurrentSettings
    train: TrainSettings
    decisions: list[str]

    @property
    def batch_tokens(self) -> int:
        """Tokens to a step."""
        assert self.train.batch_tokens is not None
        return self.train.batch_tokens

    def filled(self, decision: str = "", **settings: Any) -> Plan:
        """The plan with other settings of training, and why."""
        said = [*self.decisions, decision] if decision else self.decisions
        return replace(self, train=self.train.model_copy(update=settings), decisions=said)


def check(family: str, size: str, overrides: dict[str, Any], train: TrainSettings) -> None:
    """Raise for what is wrong whatever the data are, before a long look at them."""
    given = [name for name in ("minutes", "steps", "epochs") if getattr(train, name) is not None]
    if len(given) > 1:
        raise RegardError(f"of minutes, steps and epochs give one; got {' and '.join(given)}")
    presets = choose(PRESETS, family, "family")
    sizes = choose({"auto": presets["tiny"], **presets}, size, "size")
    with torch.device("meta"):  # shapes without numbers
        build(parse(ModelSettings, {"kind": family, **sizes, **overrides}, "model"), 8, 8)


def plan(family: str, size: str, overrides: dict[str, Any], train: TrainSettings, data: Prepared, world: World) -> Plan:
    """Fill in what was left to us, from the size of the data and the machine."""
    tokens = int(sum(lengths.sum() for lengths in data.lengths))
    decisions = []
    if size == "auto":
        size = _size(tokens, world)
        decisions.append(f"size {size}: {tokens:,} tokens to learn from, on {world.device.type}")
    sizes = PRESETS[family][size]
    dropout = {} if "dropout" in overrides else {"dropout": _dropout(tokens, size, train)}
    tied = (
        {} if "tie_embeddings" in overrides or data.exam.source is not data.exam.target else {"tie_embeddings": "all"}
    )
    model = parse(ModelSettings, {"kind": family, **sizes, **dropout, **tied, **overrides}, "model")
    if model.tie_embeddings == "all" and data.exam.source is not data.exam.target:  # as large as each other or not
        raise RegardError(
            "model.tie_embeddings = 'all' needs one vocabulary for both sides; add text.shared_vocabulary = true"
        )
    kinds = data.exam.source.kind, data.exam.target.kind
    if train.bpe_dropout and "bpe" not in kinds:
        raise RegardError(f"train.bpe_dropout = {train.bpe_dropout:g} respells pieces of bpe, and neither side has any")
    with torch.device("meta"):  # what cannot be built is refused before anything is written down
        build(model, len(data.exam.source), len(data.exam.target))
    peak = 7e-3 if train.optimizer == "muon" else 3e-3  # found at width 64; wider models want less
    known: dict[str, Any] = {
        "batch_tokens": train.batch_tokens or _budget(tokens, world),
        "learning_rate": train.learning_rate or peak * math.sqrt(64 / model.width),
    }
    known["precision"], note = resolve_precision(train.precision, world.device)
    if note:
        decisions.append(note)
    decided = Plan(f"{family} {size}", model, train.model_copy(update=known), decisions)
    scant = tokens < SCANT and "bpe" in kinds
    return _long(_against_heart(decided, tokens, world, scant=scant), tokens, world, scant=scant)


def _size(tokens: int, world: World) -> str:
    """Small data cannot fill a large model, and a CPU cannot wait for one."""
    if world.device.type == "cpu":
        return "tiny"
    return "small" if tokens < ENOUGH else "base"


def _dropout(tokens: int, size: str, train: TrainSettings) -> float:
    """A run that sees its data a few times cannot learn it by heart; a long one of little data can. (Of 11 M tokens of
    inflected forms 0.1 taught more than 0.2 in 6 epochs, by a long way: docs/quality.md.)"""
    if train.minutes is not None and size == "tiny":
        return 0.0
    return 0.1 if tokens > LITTLE or size == "tiny" else 0.3


def _budget(tokens: int, world: World) -> int:
    """Small steps learn more from each token, large ones fill a GPU."""
    if world.device.type == "cpu":
        return 2_048
    return int(min(25_000, max(4_096, tokens // 200)))


def _against_heart(decided: Plan, tokens: int, world: World, *, scant: bool) -> Plan:
    """Reading twice made every small set better (docs/quality.md) and steps twice as dear; scant text wants more of it,
    and its pieces respelt. All for where time is no matter."""
    train = decided.train
    may = world.device.type == "cuda" and tokens < LITTLE and train.minutes is None
    if train.rdrop is None:
        alpha = (3.0 if scant else 1.0) if may else 0.0
        why = f"every pair is read twice, with other dropout (train.rdrop = {alpha:g}): little data, and a GPU"
        decided = decided.filled(why if may else "", rdrop=alpha)
    if train.bpe_dropout is None:
        why = "pieces fall into smaller ones by chance (train.bpe_dropout = 0.1): little text"
        decided = decided.filled(why if may and scant else "", bpe_dropout=0.1 if may and scant else 0.0)
    return decided


def _long(decided: Plan, tokens: int, world: World, *, scant: bool) -> Plan:
    """Where nothing says how long: minutes on a large GPU, an hour on a CPU."""
    train = decided.train
    if any(given is not None for given in (train.minutes, train.steps, train.epochs)):
        return decided
    fast = world.device.type == "cuda"
    most = 60.0 if fast and scant else 40.0
    return decided.filled(epochs=min(most, max(3.0, (240e6 if fast else 60e6) / tokens)))
