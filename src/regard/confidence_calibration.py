"""Calibrate the confidence of any model on pairs that it was not trained on.

>>> regard.calibrate("runs/words/bundle-int8", "dev.tsv")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard import bundle
from regard.answer import Answer
from regard.api import PathLike
from regard.errors import RegardError
from regard.loading import load
from regard.model_location import find_model
from regard.pipeline import Pipeline
from regard.quality import References, predict_all
from regard.text import group_references
from regard.training.calibration_fit import CalibrationFit, Outcome, fit_calibration
from regard.training.pairs import as_corpus


def calibrate(
    folder: PathLike,
    pairs: Any,
    out: PathLike | None = None,
    *,
    source: str | None = None,
    target: str | None = None,
    device: str = "auto",
    advance: Callable[[int], None] = lambda count: None,
) -> Pipeline:
    """Fit `answer.confidence` of a bundle on pairs (as in `regard.train`) and write it to its card,
    or to that of a copy in `out`; returns the pipeline.

    Training does this for its own models. Sources that the model was trained on are left out.
    `advance` is called with the number of further sources.
    """
    home = find_model(folder)
    if out is None and not Path(folder).is_dir():
        raise RegardError(f"{str(folder)!r} is not a folder and stays as it is; give out (--out)")
    place = home if out is None else Path(out)
    if out is not None:
        bundle.check_destination(place)
    pipeline = load(home, device=device, long="allow")
    references = group_references(as_corpus(pairs, source=source, target=target))
    answers = predict_all(pipeline, references, None, advance)
    fit = fit_answers(pipeline, references, answers)
    if fit.errors is None:
        raise RegardError(f"the confidence cannot be calibrated ({fit.reason}); give more pairs")
    card = {**pipeline.bundle.card, "calibration": fit.to_json()}
    bundle.save(place, pipeline.bundle.with_card(card))
    return load(place, device=device)


def fit_answers(
    pipeline: Pipeline, references: References, answers: Sequence[Answer]
) -> CalibrationFit:
    """The calibration on given answers, except those to sources that were trained on."""
    known = pipeline.bundle.training_sources
    return fit_calibration(
        [
            Outcome(answer.logp, len(answer.logps), answer.text in some)
            for answer, (source, some) in zip(answers, references.items(), strict=True)
            if answer.logps and (known is None or not known.contains(source))
        ]
    )
