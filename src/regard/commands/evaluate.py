"""`regard evaluate`: metrics on held-out pairs beside baselines, their intervals and the worst
errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from regard.commands.answer_formats import COLUMNAR
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
from regard.quality import EvaluationReport, References, evaluate_pipeline
from regard.text import Corpus, group_references
from regard.text.columnar import check_columnar, write_columns
from regard.training import metrics
from regard.training.baselines import LABELS

CONFIDENCE = """\
  confidence: the probability that an output equals a reference
  error: the expected calibration error, the mean distance of confidence and accuracy in these bins
  own probability: exp(log p) of the output; perfect: what exact confidences would show by chance"""


def evaluate(
    folder: Path,
    corpus: Corpus,
    *,
    decoding: SearchOptions,
    precision: str | None = None,
    output: Path | None = None,
    engine: str = "auto",
    device: str = "auto",
    as_json: bool = False,
) -> None:
    """Predict every source of the corpus, compare with its references and print the report."""
    how: dict[str, Any] = {"engine": engine, "device": device, "precision": precision}
    pipeline = load_pipeline(folder, long="allow", **how)
    with nullcontext() if output is None else _PredictionTable(output) as table:
        reading = corpus.read()
        references = group_references(reading)
        with Progress(lambda: len(references)) as progress:
            if reading.problems:
                progress.say(reading.summary())
            report = evaluate_pipeline(
                pipeline,
                references,
                decoding,
                fingerprint=corpus.fingerprint(),
                advance=progress.advance,
            )
        try:
            if table is not None:
                table.write(report.task, references, list(report.predictions.values()))
        finally:  # a full disk loses the table, not the metrics
            print(format_json(report, folder) if as_json else format_report(report))


def format_json(report: EvaluationReport, folder: Path) -> str:
    """The report as one JSON object, without the predictions."""
    values = {**asdict(report), "bundle": str(folder)}
    del values["predictions"]
    return json.dumps(values, ensure_ascii=False)


def format_report(report: EvaluationReport) -> str:
    """The report as plain-text tables."""
    names = list(report.metrics)
    count = f"{report.sources:,} sources with {report.pairs:,} references"
    unknown = f"; {report.unknown:,} with unknown symbols" if report.unknown else ""
    heads = ["metric", "value", "95 % interval", *(LABELS[key] for key in report.baselines)]
    metric_rows = [
        [
            metrics.label(name),
            f"{one['value']:.2f}",
            f"{one['low']:.2f} – {one['high']:.2f}",
            *(f"{scores[name]:.2f}" for scores in report.baselines.values()),
        ]
        for name, one in report.metrics.items()
    ]
    length_rows = [
        [_format_range(part), f"{part['count']:,}", *(f"{part[name]:.2f}" for name in names)]
        for part in report.by_length
    ]
    labels = [metrics.label(name) for name in names]
    lines = [
        f"{count}, {report.per_second:,.0f} sources/s{unknown}",
        "",
        format_table(heads, metric_rows),
        "",
        *(f"  {line}" for line in report.legend),
        *(f"\n{note[:1].upper()}{note[1:]}." for note in report.notes),
        *(f"\n{name}: {signature}" for name, signature in report.signatures.items()),
    ]
    if "seen" in report.seen:
        rows = [
            [f"{part} in training", f"{one['sources']:,}", *(f"{one[name]:.2f}" for name in names)]
            for part, one in report.seen.items()
        ]
        lines += ["\nSeen and unseen sources", format_table(["", "sources", *labels], rows)]
    lines += ["\nBy source length in tokens"]
    lines += [format_table(["tokens", "sources", *labels], length_rows)]
    lines += _calibration_lines(report.calibration)
    if report.worst:
        head = ["source", "prediction", "reference", "edits"]
        rows = [[one.source, one.prediction, one.reference, f"{one.edits}"] for one in report.worst]
        lines += ["\nWorst errors", format_table(head, rows, left=3)]
    return "\n".join(lines)


def _calibration_lines(found: dict[str, Any]) -> list[str]:
    """The calibration error and the reliability table."""
    heads = ["confidence, %", "outputs", "mean confidence", "accuracy"]
    rows = [
        [
            f"{one['lowest']:.1f} – {one['highest']:.1f}",
            f"{one['outputs']:,}",
            f"{one['confidence']:.1f}",
            f"{one['accuracy']:.1f}",
        ]
        for one in found["bins"]
    ]
    calibrated = "not calibrated" if found["method"] == "none" else f"method: {found['method']}"
    return [
        f"\nConfidence ({calibrated}): error {found['after']:.2f}; own probability "
        f"{found['before']:.2f}; perfect {found['floor']:.2f}",
        format_table(heads, rows),
        "",
        CONFIDENCE,
    ]


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
        if self._path.suffix.lower() in COLUMNAR:
            check_columnar(str(self._path))
        try:
            self._file = open(self._partial, "w", encoding="utf-8")
        except OSError as error:
            raise write_error(self._path, error) from None
        return self

    def write(self, task: str, references: References, predictions: Sequence[str]) -> None:
        """Write source and prediction (columns that every command reads), reference and edits."""
        compared = metrics.compare(predictions, list(references.values()), task=task)
        rows = (
            (source, prediction, one.nearest, one.edits)
            for source, prediction, one in zip(references, predictions, compared, strict=True)
        )
        columns, suffix = ("source", "target", "reference", "edits"), self._path.suffix.lower()
        try:
            with self._file as file:
                if suffix in COLUMNAR:
                    write_columns(rows, self._partial, suffix, columns)
                else:
                    file.write("\t".join(columns) + "\n")
                    for row in rows:
                        file.write("\t".join(str(cell).translate(SPACES) for cell in row) + "\n")
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
