"""Model selection: evaluate on the held-out set, and save the bundle of the best model so far."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from regard import bundle
from regard.models import Model
from regard.text.files import printable_name
from regard.training.auto_settings import ResolvedSettings
from regard.training.baselines import beats_baselines
from regard.training.dataset import Dataset
from regard.training.evaluation import Evaluation, check_finite
from regard.training.forecast import Forecast, forecast_end
from regard.training.report import RunContext, TrainingProgress, build_card
from regard.training.trainer import Trainer

HELD_OUT_FILE = "held_out.jsonl"  # outputs of the best model for the held-out set


def evaluate_and_select(
    model: Model,
    trainer: Trainer,
    progress: TrainingProgress,
    dataset: Dataset,
    settings: ResolvedSettings,
    context: RunContext,
) -> None:
    """Evaluate `model`, save its bundle if it is the best, and report. Only rank 0 calls this."""
    step, held_out = trainer.step, dataset.held_out
    check_finite(model, step)
    found = held_out.evaluate(model, context.world.device)
    value, higher = held_out.primary(found.metrics, settings.train.select)
    better = _update_best(progress, value, higher=higher)
    learned = beats_baselines(found.metrics, dataset.baselines, settings.train.select)
    if not learned or value == (100 if higher else 0):
        progress.since_best = 0  # too early to tell, or nothing is left to tell: see `patience`
    progress.history = [*progress.history, {"step": step, **found.metrics}]
    if better:
        card = build_card(trainer, progress, dataset, settings, found)
        card["command"] = [printable_name(word) for word in context.command]
        _save_bundle(model, card, dataset, settings, context)
        held_out.save_outputs(context.folder / HELD_OUT_FILE, found.outputs)
    trained = [one for one in progress.history if one["step"]]
    forecast = forecast_end(trained, settings.train.evaluations)
    _report(step, found, context, better=better, forecast=forecast)


def _update_best(progress: TrainingProgress, value: float, *, higher: bool) -> bool:
    """Count evaluations without improvement; returns whether this model is the best so far."""
    gain = 0.0
    if progress.best is not None:
        gain = value - progress.best if higher else progress.best - value
    improved = gain > 0 or progress.best is None
    progress.since_best = 0 if improved else progress.since_best + 1
    better = gain >= 0  # of equal results keep the later, which was trained longer
    progress.best = value if better else progress.best
    return better


def _save_bundle(
    model: Model,
    card: dict[str, Any],
    dataset: Dataset,
    settings: ResolvedSettings,
    context: RunContext,
) -> None:
    made = bundle.Bundle(
        model,
        dataset.held_out.source,
        dataset.held_out.target,
        settings.model,
        card,
        dataset.training_sources,
        template=dataset.held_out.template,
    )
    bundle.save(context.folder / "bundle", made)


def _report(
    step: int, found: Evaluation, context: RunContext, *, better: bool, forecast: Forecast | None
) -> None:
    context.display.evaluated(step, found.metrics, found.samples, found.intervals)
    if forecast is not None:
        context.display.message(f"forecast: {forecast.describe()} at the end")
    fields = {"metrics": found.metrics, "intervals": found.intervals, "samples": found.samples}
    ahead = {} if forecast is None else {"forecast": asdict(forecast)}
    context.log.write("evaluated", step=step, **fields, best=better, **ahead)
    for callback in context.callbacks:
        callback.on_evaluation(step, found, best=better)
