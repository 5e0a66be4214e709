"""The Python API: `regard.train` and `regard.evaluate`, which the commands call, too.

>>> pipeline = regard.train(frame, out="runs/names", minutes=2)
>>> print(pipeline("Schmidt"))
>>> regard.evaluate(pipeline, test)["character_error_rate"]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.config import (
    RecurrentSettings,
    TextSettings,
    TrainSettings,
    TransformerSettings,
    parse,
)
from regard.errors import RegardError, suggestion
from regard.loading import load
from regard.model_location import find_model
from regard.pipeline import Pipeline
from regard.quality import EvaluationReport, evaluate_pipeline
from regard.reports import write_report
from regard.text import group_references
from regard.training.callbacks import Callback
from regard.training.display import Display
from regard.training.evaluation import Metric
from regard.training.pairs import as_corpus
from regard.training.run import Job, run

PathLike = str | os.PathLike[str]
MetricFunction = Callable[[Sequence[str], Sequence[Sequence[str]]], float]
MODEL_FIELDS = {*TransformerSettings.model_fields, *RecurrentSettings.model_fields}


def train(
    pairs: Any,
    out: PathLike,
    *,
    held_out: Any = None,
    source: str | None = None,
    target: str | None = None,
    bad_lines: str = "stop",
    init: PathLike | None = None,
    tokenizers: PathLike | None = None,
    tokenizer: PathLike | None = None,
    family: str | None = None,
    size: str = "auto",
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    metrics: Mapping[str, MetricFunction | Metric] | None = None,
    extend: bool = False,
    restart: bool = False,
    tensorboard: bool = False,
    display: Display | None = None,
    command: Sequence[str] = (),
    **settings: Any,
) -> Pipeline:
    """Train a model on pairs of text, or resume the run in the folder `out`; returns its pipeline.

    `pairs` and `held_out`: files, (source, target) pairs, a pandas or polars DataFrame, a Hugging
    Face Dataset or a mapping of two columns; `source` and `target` name the columns. `init`: a
    bundle to fine-tune. `tokenizers`: a bundle with the tokenizers to use; `tokenizer`: a
    tokenizer.json for both sides, or its folder. `settings`: any setting by its name (`minutes=2`,
    `width=128`, `patience=3`) or in groups (`train={…}`, `model={…}`).

    `metrics`: functions of predictions and references by name; `select="name"` selects by one of
    them. `callbacks` receive steps, evaluations and checkpoints. The same call resumes a run.
    """
    groups = group_settings(settings)
    kind = groups["model"].pop("kind", "transformer")
    columns: dict[str, Any] = {"source": source, "target": target, "bad_lines": bad_lines}
    job = Job(
        corpus=as_corpus(pairs, **columns),
        held_out=None if held_out is None else as_corpus(held_out, **columns),
        out=Path(out),
        family=family or kind,
        size=size,
        model=groups["model"],
        text=parse(TextSettings, groups["text"], "text"),
        train=parse(TrainSettings, groups["train"], "train"),
        device=device,
        tensorboard=tensorboard,
        command=command,
        init=None if init is None else find_model(init),
        tokenizers=None if tokenizers is None else find_model(tokenizers),
        tokenizer=None if tokenizer is None else Path(tokenizer),
        extend=extend,
        restart=restart,
        callbacks=callbacks,
        metrics=_as_metrics(metrics or {}),
    )
    run(job, display)
    _write_report(job.out, quiet=display is not None)
    return load(job.out, device=device)


def _write_report(out: Path, *, quiet: bool) -> None:
    """Write the report of a run, in its first process only."""
    if not int(os.environ.get("RANK", "0")):
        path = write_report(out)
        if not quiet:
            print(f"report: {path}", file=sys.stderr)


def evaluate(
    pipeline: Pipeline | PathLike,
    pairs: Any,
    *,
    source: str | None = None,
    target: str | None = None,
    **options: Any,
) -> EvaluationReport:
    """Evaluate a pipeline on pairs: metrics with 95 % intervals, baselines, errors by length.

    `report["character_error_rate"]` is a value; `report.metrics` has all with their intervals.
    `options` are decoding options, such as beam=8.
    """
    if not isinstance(pipeline, Pipeline):
        pipeline = load(pipeline, long="allow")
    corpus = as_corpus(pairs, source=source, target=target)
    decoding = None
    if options:
        from regard.decoding_options import DecodingOptions

        decoding = DecodingOptions.of(**options)
    references = group_references(corpus)
    return evaluate_pipeline(pipeline, references, decoding, fingerprint=corpus.fingerprint())


def group_settings(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings by group: names belong to exactly one; a group may also be given as a mapping."""
    groups: dict[str, dict[str, Any]] = {"model": {}, "text": {}, "train": {}}
    fields = {"train": set(TrainSettings.model_fields), "text": set(TextSettings.model_fields)}
    fields["model"] = MODEL_FIELDS
    for name, value in settings.items():
        if name in groups:
            groups[name].update(value)
            continue
        group = next((group for group, names in fields.items() if name in names), None)
        if group is None:
            known = [name for names in fields.values() for name in names]
            raise RegardError(f"unknown setting {name!r}; {suggestion(name, known)}")
        groups[group][name] = value
    return groups


def _as_metrics(metrics: Mapping[str, MetricFunction | Metric]) -> dict[str, Metric]:
    return {
        name: metric if isinstance(metric, Metric) else Metric(metric)
        for name, metric in metrics.items()
    }
