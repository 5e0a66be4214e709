"""Quality of a pipeline on pairs: metrics with intervals and baselines, seen and unseen sources,
errors by length and the worst mistakes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.answer import Answer
from regard.decoding_options import SearchOptions
from regard.pipeline import Pipeline
from regard.training import metrics
from regard.training.baselines import (
    Scores,
    compare_with_baselines,
    score_baselines,
    training_pairs,
)
from regard.training.bootstrap import intervals
from regard.training.calibration_error import measure_calibration

WORST = 10  # errors shown
BUCKETS = 6  # of source length
FIRST_WINDOW = 512  # lines searched together at first
References = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction beside the nearest reference."""

    source: str
    prediction: str
    reference: str
    edits: int


@dataclass(frozen=True)
class EvaluationReport:
    """The result of an evaluation, which JSON output has under the same names.

    `metrics`: {"value", "low", "high"} by name, with the 95 % interval. `baselines`: the same
    metrics of trivial answers. `seen`: the number and metrics of the "seen" and "unseen" sources
    (in training or not); empty if the bundle does not know. `legend`: what each metric means.
    `calibration`: the `method` of the model's card, and `CalibrationErrors` of the confidences.
    """

    bundle: str
    task: str
    pairs: int
    sources: int
    unknown: int
    metrics: dict[str, dict[str, float]]
    signatures: dict[str, str]
    baselines: Scores
    seen: dict[str, dict[str, float]]
    notes: list[str]
    legend: list[str]
    by_length: list[dict[str, Any]]
    worst: list[Mistake]
    calibration: dict[str, Any]
    seconds: float
    per_second: float
    predictions: dict[str, str] = field(default_factory=dict, repr=False)

    def __getitem__(self, metric: str) -> float:
        """The value of a metric."""
        return self.metrics[metric]["value"]


def evaluate_pipeline(
    pipeline: Pipeline,
    references: References,
    decoding: SearchOptions | None = None,
    *,
    fingerprint: Mapping[str, str] | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> EvaluationReport:
    """Predict every source and compare with its references. `fingerprint`: of the pairs' files."""
    start = time.perf_counter()
    answers = predict_all(pipeline, references, decoding, advance)
    seconds = time.perf_counter() - start
    return report_answers(pipeline, references, answers, seconds, fingerprint)


def report_answers(
    pipeline: Pipeline,
    references: References,
    answers: Sequence[Answer],
    seconds: float,
    fingerprint: Mapping[str, str] | None = None,
) -> EvaluationReport:
    """The report on the best answer to each source, found in this time."""
    predictions = [answer.text for answer in answers]
    measured = measure_predictions(pipeline, references, predictions)
    measured["notes"] = [*_training_files(pipeline, fingerprint or {}), *measured["notes"]]
    return EvaluationReport(
        bundle="" if pipeline.bundle.folder is None else str(pipeline.bundle.folder),
        pairs=sum(map(len, references.values())),
        sources=len(references),
        unknown=sum(bool(answer.unknown) for answer in answers),
        calibration=measure_confidence(pipeline, references, answers),
        seconds=seconds,
        per_second=len(predictions) / max(1e-9, seconds),
        predictions=dict(zip(references, predictions, strict=True)),
        **measured,
    )


def predict_all(
    pipeline: Pipeline,
    sources: Iterable[str],
    decoding: SearchOptions | None,
    advance: Callable[[int], None],
) -> list[Answer]:
    """The best answer to each source."""
    best = []
    for answers in pipeline.answers(sources, decoding, first=FIRST_WINDOW):
        best.append(answers[0])
        advance(1)
    return best


def measure_confidence(
    pipeline: Pipeline, references: References, answers: Sequence[Answer]
) -> dict[str, Any]:
    """How well confidence predicts that an output equals a reference, and how it was calibrated."""
    right = [answer.text in some for answer, some in zip(answers, references.values(), strict=True)]
    own = [math.exp(min(0.0, answer.logp)) for answer in answers]
    found = measure_calibration(own, [answer.confidence for answer in answers], right)
    calibrated = pipeline.bundle.card.get("calibration", {})
    return {"method": calibrated.get("method", "none"), **found.to_json()}


def task_of(pipeline: Pipeline, references: References) -> str:
    """The task on the card of a model; by the references if the card does not state it."""
    lines = (line for some in references.values() for line in some)
    task = pipeline.bundle.card.get("task")
    return task or metrics.choose_task(pipeline.bundle.target.kind, lines)


def measure_predictions(
    pipeline: Pipeline, references: References, predictions: Sequence[str]
) -> dict[str, Any]:
    """The metrics with their intervals and baselines, by source length, and the worst errors."""
    right, task = list(references.values()), task_of(pipeline, references)
    values = metrics.measure(task, predictions, right)
    bounds = intervals(task, predictions, right)
    baselines = _baselines(pipeline, task, references)
    warning = compare_with_baselines(values, bounds, baselines)
    seen, notes = measure_seen(pipeline, task, references, predictions)
    lengths = [len(pipeline.bundle.source.encode(source)) for source in references]
    inner = np.quantile(lengths, np.linspace(0, 1, BUCKETS + 1)[1:-1]).astype(int)
    edges = sorted(set(inner.tolist()))
    buckets = metrics.by_length(lengths, predictions, right, task=task, edges=edges)
    signatures = {name: values.get(f"{name}_signature") for name in bounds}
    return {
        "task": task,
        "metrics": {
            name: {"value": values[name], "low": low, "high": high}
            for name, (low, high) in bounds.items()
        },
        "signatures": {name: text for name, text in signatures.items() if text is not None},
        "baselines": baselines,
        "seen": seen,
        "notes": [*notes, *([warning] if warning else [])],
        "legend": metrics.legend(bounds),
        "by_length": [
            {name: value for name, value in bucket.items() if not name.endswith("_signature")}
            for bucket in buckets
        ],
        "worst": find_mistakes(task, references, predictions)[:WORST],
    }


def find_mistakes(task: str, references: References, predictions: Sequence[str]) -> list[Mistake]:
    """All wrong predictions, those with the most edits first."""
    compared = metrics.compare(predictions, list(references.values()), task=task)
    mistakes = [
        Mistake(source, prediction, one.nearest, one.edits)
        for source, prediction, one in zip(references, predictions, compared, strict=True)
        if one.wrong
    ]
    return sorted(mistakes, key=lambda one: (-one.edits, len(one.reference), one.source))


def measure_seen(
    pipeline: Pipeline, task: str, references: References, predictions: Sequence[str]
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """The metrics of sources that were seen in training and of the others, and a note."""
    known = pipeline.bundle.training_sources
    if known is None:
        return {}, []
    parts: dict[str, list[int]] = {"seen": [], "unseen": []}
    for i, source in enumerate(references):
        found = known.contains(source)
        if found is not None:
            parts["seen" if found else "unseen"].append(i)
    right, scores = list(references.values()), {}
    for name, chosen in parts.items():
        if chosen:
            some = [predictions[i] for i in chosen], [right[i] for i in chosen]
            values = metrics.measure(task, *some)
            numbers = {key: v for key, v in values.items() if not key.endswith("_signature")}
            scores[name] = {"sources": len(chosen), **numbers}
    checked = sum(map(len, parts.values()))
    if not parts["seen"]:
        return scores, []
    note = f"{len(parts['seen']):,} of {checked:,} sources occur in the training data; only unseen "
    return scores, [note + "sources measure the quality on new data"]


def _baselines(pipeline: Pipeline, task: str, references: References) -> Scores:
    """The baselines that the bundle's card and the run folder around it allow."""
    bundle, folder = pipeline.bundle, pipeline.bundle.folder
    pairs = [] if folder is None else training_pairs(folder.parent, bundle.source, bundle.target)
    frequent = bundle.card.get("most_frequent_target")
    return score_baselines(task, references, frequent=frequent, pairs=pairs)


def _training_files(pipeline: Pipeline, fingerprint: Mapping[str, str]) -> list[str]:
    """Notes on files that the model was trained on, or that selected it."""
    used = pipeline.bundle.card.get("data", {})
    notes = []
    for name, digest in fingerprint.items():
        if name == "reading":
            continue
        roles = {key.startswith("held out: ") for key, value in used.items() if value == digest}
        if False in roles:
            notes.append(f"{name} is the file the model was trained on")
        elif True in roles:
            notes.append(f"{name} is the held-out file that selected the model")
    return notes
