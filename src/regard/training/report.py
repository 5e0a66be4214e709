"""What a run reports: its start, the card of its bundle, and (stage 6) its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard import bundle
from regard.device import resolve_precision
from regard.errors import RegardError
from regard.text.input_alphabet import describe_input
from regard.training import metrics
from regard.training.auto_settings import DataFacts, ResolvedSettings
from regard.training.baselines import compare_with_baselines, describe_baselines
from regard.training.callbacks import Callback
from regard.training.dataset import Dataset
from regard.training.display import Display
from regard.training.distributed import World
from regard.training.evaluation import Evaluation
from regard.training.fine_tuning import InitialModel
from regard.training.forecast import Forecast, describe_start, forecast_start
from regard.training.held_out_examples import choose_examples
from regard.training.metric_facts import metric_facts
from regard.training.run_log import RunLog
from regard.training.trainer import Trainer

SHORTEST_FORECAST = 200  # steps of a run whose quality is forecast


@dataclass(frozen=True)
class RunContext:
    """Where a run works and reports: its folder, processes, display and log."""

    folder: Path
    world: World
    display: Display
    log: RunLog
    command: Sequence[str] = ()
    callbacks: Sequence[Callback] = ()
    initial: InitialModel | None = None


@dataclass
class TrainingProgress:
    """What a run has done so far; saved in every checkpoint."""

    tokens: int = 0
    seconds: float = 0.0
    evaluation_seconds: float = 0.0  # of the last evaluation
    best: float | None = None  # value of the primary metric
    since_best: int = 0  # evaluations
    history: list[dict[str, Any]] = field(default_factory=list)
    stopped: str | None = None  # why the run ended early


@dataclass(frozen=True)
class TrainResult:
    """Result of the train stage: the last step, and what the run has done."""

    step: int
    progress: TrainingProgress


def report_start(
    trainer: Trainer,
    dataset: Dataset,
    settings: ResolvedSettings,
    context: RunContext,
    *,
    resumed: bool,
    stopped: bool = False,
) -> None:
    """Display and log what is about to be trained, and every automatic decision."""
    device = context.world.device
    note = resolve_precision(settings.train.precision, device)[1]
    decisions = [*dataset.decisions, *settings.decisions]
    for line in ([note] if note else []) if resumed else decisions:
        context.display.message(line)
    pairs, held_out = len(dataset.lengths[0]), len(dataset.held_out.references)
    steps = f"{trainer.total:,} of about {settings.batch_tokens:,} tokens"
    facts = {
        "model": settings.name,
        "parameters": f"{sum(p.numel() for p in trainer.model.parameters()):,}",
        "pairs": f"{pairs:,} for training, {held_out:,} held out",
        "steps": f"{steps} on {device}",
    }
    forecaster = None if resumed else _forecaster(trainer, dataset, settings, context)
    forecast = None if forecaster is None else forecaster(1.0)
    if forecaster is not None and forecast is not None:
        facts["forecast"] = describe_start(forecaster, settings.train.minutes)
    if resumed and (stopped or trainer.step >= trainer.total):
        facts["steps"] = f"{trainer.step:,}, complete; nothing is left to train"
        facts["next"] = "--extend with more minutes, steps or epochs continues it; --restart"
        facts["next"] += " starts over"
    elif resumed:
        facts["resumed"] = f"from step {trainer.step:,}"
    context.display.started(facts)
    groups = {"model": settings.model.model_dump(), "train": settings.train.model_dump()}
    for callback in context.callbacks:
        callback.on_start(context.folder, {**groups, "name": settings.name}, trainer.total)
    event = "resumed" if resumed else "started"
    fields = {} if forecast is None else {"forecast": asdict(forecast)}
    context.log.write(event, step=trainer.step, total=trainer.total, facts=facts, **fields)


def _forecaster(
    trainer: Trainer, dataset: Dataset, settings: ResolvedSettings, context: RunContext
) -> Callable[[float], Forecast | None] | None:
    """The quality to expect of runs whose lengths are multiples of this one's, if it is long enough
    to say something about."""
    if trainer.total < SHORTEST_FORECAST or context.initial is not None:
        return None
    data = DataFacts.of(dataset, context.world, settings.train)
    epochs = trainer.total * settings.batch_tokens / data.tokens
    full_epochs = replace(data, gpu=True).choose_epochs()
    pairs = len(dataset.lengths[0])
    return lambda share: forecast_start(
        dataset.baselines, pairs, epochs=share * epochs, full_epochs=full_epochs
    )


def build_card(
    trainer: Trainer,
    progress: TrainingProgress,
    dataset: Dataset,
    settings: ResolvedSettings,
    evaluation: Evaluation,
) -> dict[str, Any]:
    """The card of a trained model: data, settings, training, and metrics on the held-out set."""
    sources, targets = dataset.lengths
    held_out = dataset.held_out
    longest = {"source": int(sources.max()), "target": int(targets.max())}
    return {
        "metrics": dict(evaluation.metrics),
        "intervals": {name: list(pair) for name, pair in evaluation.intervals.items()},
        "baselines": dataset.baselines,
        "most_frequent_target": dataset.frequent_target,
        "samples": [list(sample) for sample in evaluation.samples],
        "examples": choose_examples(list(held_out.references), held_out.source),
        "input": {
            "source": describe_input(held_out.source, held_out.references),
            "target": describe_input(
                held_out.target, (text for found in held_out.references.values() for text in found)
            ),
        },
        "task": held_out.task,
        "held_out": len(held_out.references),
        "pairs": len(sources),
        "decisions": [*dataset.decisions, *settings.decisions],
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "longest": {**longest, "ratio": held_out.ratio},
        "steps": trainer.step,
        "of": trainer.total,
        "seconds": round(progress.seconds, 1),
        "tokens": progress.tokens,
        "settings": {
            "train": settings.train.model_dump(),
            "text": settings.text.model_dump(),
        },
        "data": dataset.fingerprint,
        "versions": {"python": sys.version.split()[0], "torch": str(torch.__version__)},
    }


def report(result: TrainResult, context: RunContext) -> dict[str, Any]:
    """Stage 6: display and log the result; returns the card of the best bundle."""
    context.world.barrier()
    path, progress = context.folder / "bundle", result.progress
    if not path.exists():
        raise RegardError(
            f"this run is finished and its bundle was moved from {str(context.folder)!r}; use "
            "another --out"
        )
    card = bundle.load(path).card
    if context.world.first:
        context.log.write("finished", step=result.step, metrics=card["metrics"])
        facts = summarize(card)
        if progress.stopped:
            facts["stopped"] = progress.stopped
        facts |= {"minutes": f"{progress.seconds / 60:.1f}", "bundle": str(path)}
        context.display.finished(facts)
        for callback in context.callbacks:
            callback.on_end(card)
    return card


def summarize(card: Mapping[str, Any]) -> dict[str, str]:
    """The quality on a card: metrics with intervals, baselines, a warning and the legend."""
    values = card["metrics"]
    intervals = {name: tuple(pair) for name, pair in card.get("intervals", {}).items()}
    facts = metric_facts(values, intervals)
    primary = card["settings"]["train"].get("select")
    name, _, _ = metrics.primary_metric(values, primary)
    baselines = card.get("baselines", {})
    if any(name in found for found in baselines.values()):
        facts[f"baselines ({metrics.label(name)})"] = describe_baselines(baselines, name)
    warning = compare_with_baselines(values, intervals, baselines, primary)
    if warning:
        facts["warning"] = warning
    facts["legend"] = "; ".join(line.replace("; ", ", ") for line in metrics.legend(values))
    facts["legend"] += "; in parentheses: 95 % interval"
    return facts
