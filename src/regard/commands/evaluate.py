"""`regard evaluate`: metrics on held-out pairs, their confidence intervals and the worst errors."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from regard.commands.bootstrap import intervals
from regard.commands.formats import SPACES, format_table
from regard.commands.output_files import (
    check_not_folder,
    is_special_file,
    resolve_link,
    write_error,
)
from regard.commands.progress import Progress
from regard.decoding_options import SearchOptions
from regard.loading import load_pipeline
from regard.pipeline import Pipeline
from regard.text import Corpus, group_references
from regard.training import metrics

MEANING = {
    "ser": "edits per 100 symbols",
    "wer": "wrong answers, %",
    "exact": "right answers, %",
    "chrf": "character n-gram F-score",
    "bleu": "word n-gram precision",
}
WORST = 10  # errors shown
BUCKETS = 6  # of source length
FIRST_WINDOW = 512  # lines searched together at first


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction beside the nearest reference."""

    source: str
    prediction: str
    reference: str
    edits: int


@dataclass(frozen=True)
class EvaluationReport:
    """The result. `metrics` are {"value", "low", "high"}: each metric and its 95 % interval."""

    bundle: str
    task: str
    pairs: int
    sources: int
    unknown: int
    metrics: dict[str, dict[str, float]]
    signatures: dict[str, str]
    by_length: list[dict[str, Any]]
    worst: list[Mistake]
    seconds: float
    per_second: float


def evaluate(
    folder: Path,
    corpus: Corpus,
    *,
    decoding: SearchOptions,
    precision: str = "float32",
    output: Path | None = None,
    device: str = "auto",
    as_json: bool = False,
) -> None:
    """Predict every source of the corpus, compare with its references and print the report."""
    pipeline = load_pipeline(folder, device=device, long="allow", precision=precision)
    with nullcontext() if output is None else _PredictionTable(output) as table:
        reading = corpus.read()
        references = group_references(reading)
        with Progress(lambda: len(references)) as progress:
            if reading.problems:
                progress.say(reading.summary())
            start = time.perf_counter()
            predictions, unknown = predict_all(pipeline, list(references), decoding, progress)
            seconds = time.perf_counter() - start
        report = EvaluationReport(
            bundle=str(folder),
            pairs=sum(map(len, references.values())),
            sources=len(references),
            unknown=unknown,
            seconds=seconds,
            per_second=len(predictions) / max(1e-9, seconds),
            **measure_predictions(pipeline, references, predictions),
        )
        try:
            if table is not None:
                table.write(pipeline, references, predictions)
        finally:  # a full disk loses the table, not the metrics
            if as_json:
                print(json.dumps(asdict(report), ensure_ascii=False))
            else:
                print(format_report(report))


def predict_all(
    pipeline: Pipeline, sources: Sequence[str], decoding: SearchOptions, progress: Progress
) -> tuple[list[str], int]:
    """The best output for each source, and the number of sources with unknown symbols."""
    predictions, unknown = [], 0
    search = pipeline.search(decoding)
    for answers in pipeline.answers(sources, search, first=FIRST_WINDOW):
        predictions.append(answers[0].text)
        unknown += bool(answers[0].unknown)
        progress.advance(1)
    return predictions, unknown


def measure_predictions(
    pipeline: Pipeline, references: dict[str, list[str]], predictions: Sequence[str]
) -> dict[str, Any]:
    """The metrics with their intervals, by source length, and the worst errors."""
    kind, right = pipeline.bundle.target.kind, list(references.values())
    task = pipeline.bundle.card.get("task")
    task = task or metrics.choose_task(kind, (line for some in right for line in some))
    values = metrics.measure(task, kind, predictions, right)
    bounds = intervals(task, kind, predictions, right)
    lengths = [len(pipeline.bundle.source.encode(source)) for source in references]
    inner = np.quantile(lengths, np.linspace(0, 1, BUCKETS + 1)[1:-1]).astype(int)
    edges = sorted(set(inner.tolist()))
    buckets = metrics.by_length(lengths, predictions, right, kind=kind, task=task, edges=edges)
    compared = metrics.compare(predictions, right, kind=kind)
    mistakes = [
        Mistake(source, prediction, one.nearest, one.edits)
        for source, prediction, one in zip(references, predictions, compared, strict=True)
        if one.wrong
    ]
    mistakes.sort(key=lambda one: (-one.edits, len(one.reference), one.source))
    signatures = {name: values.get(f"{name}_signature") for name in bounds}
    return {
        "task": task,
        "metrics": {
            name: {"value": values[name], "low": low, "high": high}
            for name, (low, high) in bounds.items()
        },
        "signatures": {name: text for name, text in signatures.items() if text is not None},
        "by_length": [
            {name: value for name, value in bucket.items() if not name.endswith("_signature")}
            for bucket in buckets
        ],
        "worst": mistakes[:WORST],
    }


def format_report(report: EvaluationReport) -> str:
    """The report as plain-text tables."""
    names = list(report.metrics)
    count = f"{report.sources:,} sources with {report.pairs:,} references"
    unknown = f"; {report.unknown:,} with unknown symbols" if report.unknown else ""
    metric_rows = [
        [
            f"{name} ({MEANING[name]})",
            f"{one['value']:.2f}",
            f"{one['low']:.2f} – {one['high']:.2f}",
        ]
        for name, one in report.metrics.items()
    ]
    length_rows = [
        [_format_range(part), f"{part['count']:,}", *(f"{part[name]:.2f}" for name in names)]
        for part in report.by_length
    ]
    lines = [
        f"{count}, {report.per_second:,.0f} sources/s{unknown}",
        "",
        format_table(["metric", "value", "95 % interval"], metric_rows),
        *(f"\n{name}: {signature}" for name, signature in report.signatures.items()),
        "\nBy source length in tokens",
        format_table(["tokens", "sources", *names], length_rows),
    ]
    if report.worst:
        head = ["source", "prediction", "reference", "edits"]
        rows = [[one.source, one.prediction, one.reference, f"{one.edits}"] for one in report.worst]
        lines += ["\nWorst errors", format_table(head, rows, left=3)]
    return "\n".join(lines)


def _format_range(part: dict[str, Any]) -> str:
    least, most = part["least"], part["most"]
    return f"{least}+" if most is None else f"{least}" if least == most else f"{least}–{most}"


class _PredictionTable:
    """The file of predictions, opened first: a path that cannot be written is reported at once."""

    def __init__(self, path: Path) -> None:
        path = resolve_link(path)
        self._path = self._partial = path
        if not is_special_file(path):
            # Hidden, because NAME.partial may be the resumable output of `regard predict`.
            self._partial = path.with_name(f".{path.name}.partial")
        self._file: TextIO

    def __enter__(self) -> _PredictionTable:
        check_not_folder(self._path)
        try:
            self._file = open(self._partial, "w", encoding="utf-8")
        except OSError as error:
            raise write_error(self._path, error) from None
        return self

    def write(
        self, pipeline: Pipeline, references: dict[str, list[str]], predictions: Sequence[str]
    ) -> None:
        """Write source and prediction (columns that every command reads), reference and edits."""
        kind = pipeline.bundle.target.kind
        compared = metrics.compare(predictions, list(references.values()), kind=kind)
        rows = (
            (source, prediction, one.nearest, str(one.edits))
            for source, prediction, one in zip(references, predictions, compared, strict=True)
        )
        try:
            with self._file as file:
                file.write("source\ttarget\treference\tedits\n")
                for row in rows:
                    file.write("\t".join(cell.translate(SPACES) for cell in row) + "\n")
            if self._partial != self._path:
                self._partial.replace(self._path)
        except OSError as error:
            raise write_error(self._path, error) from None

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # reported before
            self._file.close()
        if self._partial != self._path:
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)  # renamed already if the table is complete
