"""The calibration of a run's best model, fitted on the held-out set after training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard import bundle
from regard.searcher import Searcher
from regard.training.calibration_fit import (
    MIN_OUTPUTS,
    CalibrationFit,
    Outcome,
    fit_calibration,
)
from regard.training.dataset import Dataset
from regard.training.report import RunContext

WINDOW = 512  # sources searched together


def calibrate(dataset: Dataset, context: RunContext) -> None:
    """Add a calibration to the card of the run's bundle, unless it has one. All processes may call
    this; only rank 0 works."""
    path = context.folder / "bundle"
    if not context.world.first or not path.exists():
        return
    best = bundle.read(path, str(context.world.device))
    if "calibration" in best.card:
        return
    few = len(dataset.held_out.references) < MIN_OUTPUTS  # spares decoding them
    fit = fit_calibration([] if few else list(_outcomes(best, dataset)))
    card = {**best.card, "calibration": fit.to_json()}
    bundle.save(path, best.with_card(card))
    context.display.message(describe_fit(fit))
    context.log.write("calibrated", **fit.to_json())


def _outcomes(best: bundle.Bundle, dataset: Dataset) -> Iterator[Outcome]:
    """What search with the default options finds for the held-out sources, except those that also
    occur in the training data: the model is surer of them than of new ones."""
    searcher = Searcher(best, engine="auto", precision=None)
    known = dataset.training_sources
    items = [
        (best.source.encode(source), references)
        for source, references in dataset.held_out.references.items()
        if not known.contains(source)
    ]
    items = [item for item in items if item[0]]
    for start in range(0, len(items), WINDOW):
        window = items[start : start + WINDOW]
        found = searcher.run(searcher.default_options, [ids for ids, _ in window])
        for (_, references), hypotheses in zip(window, found, strict=True):
            for first in hypotheses[:1]:
                right = best.target.decode(first.ids) in references
                yield Outcome(sum(first.logps), len(first.logps), right)


def describe_fit(fit: CalibrationFit) -> str:
    """The calibration in one line."""
    if fit.errors is None:
        return f"confidence: not calibrated ({fit.reason})"
    errors: Any = fit.errors
    method = "the model's own probability" if fit.method == "none" else fit.method
    return (
        f"confidence: calibrated on {fit.outputs:,} held-out outputs ({method}); expected "
        f"calibration error {errors.before:.1f} before, {errors.after:.1f} after"
    )
