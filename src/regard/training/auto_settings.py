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
from regard.training.big_size import pays_off
from regard.training.dataset import Dataset
from regard.training.distributed import World
from regard.training.fine_tuning import FINE_TUNING_EPOCHS, RATE_FACTOR, fine_tuning_batch

# Training tokens up to which a size is used on a GPU, in single symbols and in running text
# (docs/log.md, "Small data"); larger data get a base model, or a big one (see big_size).
SIZE_LIMITS = {
    "symbols": {"tiny": 30e3, "mini": 250e3, "small": 20e6},
    "text": {"tiny": 30e3, "mini": 150e3, "small": 20e6},
}
CPU_LIMIT = 10e6  # tokens up to which a CPU trains a mini model in about an hour; tiny beyond
# Tokens in which a mini model overtakes a tiny one, trained as long; or this many epochs, if that
# is less. Running text needs the larger model earlier (docs/log.md, "Small data").
MINI_TOKENS = {"symbols": 8e6, "text": 3.9e6}
MINI_EPOCHS = 40.0
CPU_SPEED = 9e3  # tokens/s of a mini model on two slow cores, where it is not measured
TINY_SPEED = 3.3  # tiny over mini
CPU_TOKENS = 30e6  # tokens of a run on a CPU, whose length is not given
GPU_TOKENS = 240e6  # the same on a GPU
SMALL_DATA = 5e6  # tokens below which a run repeats its data so often that it may overfit
VERY_SMALL_TEXT = 2e6  # tokens below which running text needs the strongest regularisation
FEW_TOKENS = 250e3  # below which the number of epochs grows with falling amounts of data,
EPOCHS_POWER = 1.2  # as this power of them,
MAX_EPOCHS = 300.0  # up to this one
PATIENCE_SHARE, MIN_PATIENCE = 3 / 8, 3  # evaluations without improvement before a run ends
MANY_EPOCHS = 60.0  # in which a model without strong regularisation overfits


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
    requested: RequestedSettings, dataset: Dataset, world: World, speed: float | None = None
) -> ResolvedSettings:
    """Choose all open settings by the size of the data and the machine. `speed`: tokens/s of a mini
    model on this CPU, if it was measured."""
    train, size = requested.train, requested.size
    if requested.fine_tuning and (train.minutes, train.steps, train.epochs) == (None,) * 3:
        train = train.model_copy(update={"epochs": FINE_TUNING_EPOCHS})
    data = replace(DataFacts.of(dataset, world, train), speed=speed or CPU_SPEED)
    decisions = []
    if requested.fine_tuning:
        size = "of the initial model"
    elif size == "auto":
        size = data.choose_size()
        on = f"{world.device.type}{'' if speed is None else f', {speed:,.0f} tokens/s with mini'}"
        decisions.append(f"size {size}: {data.tokens:,} training tokens, on {on}")
    model = _resolve_model(requested, dataset, size, data)
    if train.bpe_dropout and not data.subwords:
        raise RegardError(
            f"train.bpe_dropout = {train.bpe_dropout:g} needs a bpe tokenizer on at least one side"
        )
    peak = 7e-3 if train.optimizer == "muon" else 3e-3  # tuned at width 64; wider models need less
    batch_tokens = data.choose_batch_tokens()
    if requested.fine_tuning:
        peak *= RATE_FACTOR
        batch_tokens = fine_tuning_batch(data.tokens, batch_tokens)
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
    settings = _regularise(settings, data)
    if train.patience is None:
        settings = settings.updated(patience=data.choose_patience(train.evaluations))
    return settings if data.length_given else settings.updated(epochs=data.choose_epochs())


@dataclass(frozen=True)
class DataFacts:
    """What automatic choices depend on: the amount and kind of data, the machine, the time."""

    tokens: int
    subwords: bool  # at least one side is running text
    gpu: bool
    minutes: float | None
    steps: int | None
    epochs: float | None
    augmented: bool = False  # the same pairs in many forms
    speed: float = CPU_SPEED  # tokens/s of a mini model on this CPU

    @classmethod
    def of(cls, dataset: Dataset, world: World, train: TrainSettings) -> DataFacts:
        """The facts about a dataset."""
        kinds = dataset.held_out.source.kind, dataset.held_out.target.kind
        tokens = int(sum(lengths.sum() for lengths in dataset.lengths))
        length = train.minutes, train.steps, train.epochs
        augmented = dataset.augmentation is not None
        return cls(tokens, "bpe" in kinds, world.device.type == "cuda", *length, augmented)

    @property
    def length_given(self) -> bool:
        """Whether the length of the run is given."""
        return any(given is not None for given in (self.minutes, self.steps, self.epochs))

    @property
    def little_text(self) -> bool:
        """Whether this is running text, and very little of it."""
        return self.subwords and self.tokens < VERY_SMALL_TEXT

    def choose_size(self) -> str:
        """Small data cannot fill a large model, and a CPU is too slow for one."""
        kind = "text" if self.subwords else "symbols"
        limits = SIZE_LIMITS[kind]
        size = next((name for name, most in limits.items() if self.tokens < most), "base")
        if self.gpu and size == "base" and self.subwords and self.length_given:
            run_tokens = None if self.minutes else self.tokens * self.expected_epochs("big")
            return "big" if pays_off(self.tokens, run_tokens, self.minutes) else "base"
        if self.gpu or size == "tiny":
            return size
        if self.minutes is None:
            return "mini" if self.tokens <= CPU_LIMIT else "tiny"
        enough = min(MINI_TOKENS[kind], MINI_EPOCHS * self.tokens)
        return "mini" if 60 * self.minutes * self.speed >= enough else "tiny"

    def choose_batch_tokens(self) -> int:
        """Small batches learn more from each token; large ones use a GPU fully."""
        if not self.gpu:
            return int(min(2_048, max(512, self.tokens // 30)))
        return int(min(25_000, max(512, min(4_096, self.tokens // 30), self.tokens // 200)))

    def choose_epochs(self) -> float:
        """If no length is given: minutes on a large GPU, about an hour on a CPU."""
        limit = 60.0 if self.augmented or (self.gpu and self.little_text) else 40.0
        if not self.augmented:
            limit = min(MAX_EPOCHS, limit * max(1.0, (FEW_TOKENS / self.tokens) ** EPOCHS_POWER))
        affordable = (GPU_TOKENS if self.gpu else CPU_TOKENS) / self.tokens
        return min(limit, max(3.0, affordable))

    def choose_patience(self, evaluations: int) -> int:
        """Evaluations without improvement after which a run ends; 0 if its length is given.

        It ends two thirds of 123 runs on small data early, none of which would have improved by
        more than 0.7 points (docs/log.md, "Early stopping").
        """
        asked = self.steps is not None or self.epochs is not None
        return 0 if asked else max(MIN_PATIENCE, round(PATIENCE_SHARE * evaluations))

    def expected_epochs(self, size: str) -> float:
        """Epochs of the run; with minutes on a CPU, by its speed."""
        if self.epochs is not None:
            return self.epochs
        if self.steps is not None:
            return self.steps * self.choose_batch_tokens() / self.tokens
        if self.minutes is None or self.gpu:
            return self.choose_epochs()
        speed = self.speed * (TINY_SPEED if size == "tiny" else 1.0)
        return 60 * self.minutes * speed / self.tokens


def _resolve_model(
    requested: RequestedSettings, dataset: Dataset, size: str, data: DataFacts
) -> Any:
    """The model settings: preset, automatic choices, then what the user gave."""
    source, target = dataset.held_out.source, dataset.held_out.target
    presets = FAMILIES[requested.family].presets
    values = {"kind": requested.family, **presets.get(size, {})}  # an initial model has them all
    values["dropout"] = _choose_dropout(data, size)
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


def _choose_dropout(data: DataFacts, size: str) -> float:
    """Only long runs on little data overfit. (On 11 M tokens of inflected forms, 0.1 was much
    better than 0.2 in 6 epochs: docs/quality.md.)"""
    if data.tokens > SMALL_DATA:
        return 0.1
    if data.gpu or data.expected_epochs(size) >= MANY_EPOCHS:
        return 0.3
    return 0.0 if data.minutes is not None and size == "tiny" else 0.1


def _regularise(settings: ResolvedSettings, data: DataFacts) -> ResolvedSettings:
    """R-Drop and BPE-dropout for small data, where there is time for them.

    R-Drop improved every small dataset (docs/quality.md) and doubles the cost of a step.
    """
    train = settings.train
    useful = data.tokens < SMALL_DATA and data.minutes is None
    if not data.gpu:  # only if it fits in about an hour
        affordable = 2 * data.tokens * data.choose_epochs() <= 1.2 * CPU_TOKENS
        useful = useful and affordable and not data.length_given
    if train.rdrop is None:
        alpha = (3.0 if data.little_text else 1.0) if useful else 0.0
        reason = f"R-Drop for small data (train.rdrop = {alpha:g})"
        settings = settings.updated(reason if useful else "", rdrop=alpha)
    if train.bpe_dropout is None:
        useful = useful and data.little_text
        reason = "BPE-dropout for very little text (train.bpe_dropout = 0.1)" if useful else ""
        settings = settings.updated(reason, bpe_dropout=0.1 if useful else 0.0)
    return settings
