"""Automatic settings: model size, batch size, learning rate, regularisation and run length."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from regard.config import (
    ModelSettings,
    RecurrentSettings,
    TextSettings,
    TrainSettings,
    TransformerSettings,
    parse,
)
from regard.device import resolve_precision
from regard.errors import RegardError, choose
from regard.models import FAMILIES
from regard.models.meta_model import build_on_meta
from regard.training.dataset import Dataset
from regard.training.distributed import World
from regard.training.fine_tuning import FINE_TUNING_EPOCHS, RATE_FACTOR, fine_tuning_batch

BASE_TOKENS = 20e6  # training tokens from which a base model is used
SMALL_DATA = 5e6  # tokens below which a run repeats its data so often that it may overfit
VERY_SMALL_TEXT = 2e6  # tokens below which running text needs the strongest regularisation


@dataclass(frozen=True)
class RequestedSettings:
    """Settings as the user gave them; None and "auto" are chosen by Regard."""

    family: str = "transformer"
    size: str = "auto"
    model: dict[str, Any] = field(default_factory=dict)
    train: TrainSettings = field(default_factory=TrainSettings)
    text: TextSettings = field(default_factory=TextSettings)
    fine_tuning: bool = False


@dataclass(frozen=True)
class ResolvedSettings:
    """Settings of a run with every automatic choice made, and the reasons in sentences."""

    name: str
    model: TransformerSettings | RecurrentSettings
    train: TrainSettings
    text: TextSettings
    decisions: list[str]
    extended: bool = False  # the length differs from the one that is stored

    @property
    def batch_tokens(self) -> int:
        """Tokens of a step."""
        assert self.train.batch_tokens is not None
        return self.train.batch_tokens

    def updated(self, reason: str = "", **train: Any) -> ResolvedSettings:
        """These settings with other values of `train`, and the reason."""
        decisions = [*self.decisions, reason] if reason else self.decisions
        return replace(self, train=self.train.model_copy(update=train), decisions=decisions)


def check_settings(requested: RequestedSettings) -> None:
    """Raise for settings that are wrong whatever the data, before the data are read."""
    train = requested.train
    lengths = ("minutes", "steps", "epochs")
    given = [name for name in lengths if getattr(train, name) is not None]
    if len(given) > 1:
        raise RegardError(f"give only one of minutes, steps and epochs; got {' and '.join(given)}")
    presets = choose(FAMILIES, requested.family, "family").presets
    sizes = choose({"auto": presets["tiny"], **presets}, requested.size, "size")
    values = {"kind": requested.family, **sizes, **requested.model}
    build_on_meta(parse(ModelSettings, values, "model"), 8, 8)  # shapes without data


def resolve_settings(
    requested: RequestedSettings, dataset: Dataset, world: World
) -> ResolvedSettings:
    """Choose all open settings by the size of the data and the machine."""
    train, size = requested.train, requested.size
    tokens = int(sum(lengths.sum() for lengths in dataset.lengths))
    decisions = []
    if requested.fine_tuning:
        size = "of the initial model"
    elif size == "auto":
        size = _choose_size(tokens, world)
        decisions.append(f"size {size}: {tokens:,} training tokens, on {world.device.type}")
    model = _resolve_model(requested, dataset, size, tokens)
    kinds = dataset.held_out.source.kind, dataset.held_out.target.kind
    if train.bpe_dropout and "bpe" not in kinds:
        raise RegardError(
            f"train.bpe_dropout = {train.bpe_dropout:g} needs a bpe tokenizer on at least one side"
        )
    peak = 7e-3 if train.optimizer == "muon" else 3e-3  # tuned at width 64; wider models need less
    batch_tokens = _choose_batch_tokens(tokens, world)
    if requested.fine_tuning:
        peak *= RATE_FACTOR
        batch_tokens = fine_tuning_batch(tokens, batch_tokens)
    values: dict[str, Any] = {
        "batch_tokens": train.batch_tokens or batch_tokens,
        "learning_rate": train.learning_rate or peak * math.sqrt(64 / model.width),
    }
    values["precision"], note = resolve_precision(train.precision, world.device)
    if note:
        decisions.append(note)
    train = train.model_copy(update=values)
    name = f"{requested.family} {size}"
    settings = ResolvedSettings(name, model, train, requested.text, decisions)
    little_text = tokens < VERY_SMALL_TEXT and "bpe" in kinds
    settings = _regularise(settings, tokens, world, little_text=little_text)
    if requested.fine_tuning and not _has_length(train):
        return settings.updated(epochs=FINE_TUNING_EPOCHS)
    return _choose_epochs(settings, tokens, world, little_text=little_text)


def _resolve_model(requested: RequestedSettings, dataset: Dataset, size: str, tokens: int) -> Any:
    """The model settings: preset, automatic choices, then what the user gave."""
    source, target = dataset.held_out.source, dataset.held_out.target
    presets = FAMILIES[requested.family].presets
    values = {"kind": requested.family, **presets.get(size, {})}  # an initial model has them all
    values["dropout"] = _choose_dropout(tokens, size, requested.train)
    if source is target:
        values["tie_embeddings"] = "all"
    model = parse(ModelSettings, {**values, **requested.model}, "model")
    tie = model.tie_embeddings
    if tie in ("all", "inputs") and source is not target:  # even if their sizes are equal
        raise RegardError(
            f"model.tie_embeddings = {tie!r} needs one vocabulary for both sides; add "
            "text.shared_vocabulary = true"
        )
    build_on_meta(model, len(source), len(target))  # refuse it before anything is written
    return model


def _choose_size(tokens: int, world: World) -> str:
    """Small data cannot fill a large model, and a CPU is too slow for one."""
    if world.device.type == "cpu":
        return "tiny"
    return "small" if tokens < BASE_TOKENS else "base"


def _choose_dropout(tokens: int, size: str, train: TrainSettings) -> float:
    """Only long runs on little data overfit. (On 11 M tokens of inflected forms, 0.1 was much
    better than 0.2 in 6 epochs: docs/quality.md.)"""
    if train.minutes is not None and size == "tiny":
        return 0.0
    return 0.1 if tokens > SMALL_DATA or size == "tiny" else 0.3


def _choose_batch_tokens(tokens: int, world: World) -> int:
    """Small batches learn more from each token; large ones use a GPU fully."""
    if world.device.type == "cpu":
        return 2_048
    return int(min(25_000, max(4_096, tokens // 200)))


def _regularise(
    settings: ResolvedSettings, tokens: int, world: World, *, little_text: bool
) -> ResolvedSettings:
    """R-Drop and BPE-dropout for small data, on a GPU and without a time limit.

    R-Drop improved every small dataset (docs/quality.md) and doubles the cost of a step.
    """
    train = settings.train
    useful = world.device.type == "cuda" and tokens < SMALL_DATA and train.minutes is None
    if train.rdrop is None:
        alpha = (3.0 if little_text else 1.0) if useful else 0.0
        reason = f"R-Drop for small data on a GPU (train.rdrop = {alpha:g})"
        settings = settings.updated(reason if useful else "", rdrop=alpha)
    if train.bpe_dropout is None:
        useful = useful and little_text
        reason = "BPE-dropout for very little text (train.bpe_dropout = 0.1)" if useful else ""
        settings = settings.updated(reason, bpe_dropout=0.1 if useful else 0.0)
    return settings


def _has_length(train: TrainSettings) -> bool:
    return any(given is not None for given in (train.minutes, train.steps, train.epochs))


def _choose_epochs(
    settings: ResolvedSettings, tokens: int, world: World, *, little_text: bool
) -> ResolvedSettings:
    """If no length is given: minutes on a large GPU, about an hour on a CPU."""
    train = settings.train
    if _has_length(train):
        return settings
    gpu = world.device.type == "cuda"
    limit = 60.0 if gpu and little_text else 40.0
    return settings.updated(epochs=min(limit, max(3.0, (240e6 if gpu else 60e6) / tokens)))
