"""Evaluate: the task's metrics on pairs, how sure they are, and where the mistakes lie; what `regard evaluate` does."""

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
from regard.commands.formats import SPACES
from regard.commands.loading import chosen, opened
from regard.commands.options import Draw, Form, Search
from regard.commands.output_files import no_file, real
from regard.commands.progress import Progress
from regard.commands.text_table import table
from regard.errors import RegardError
from regard.pipeline import Pipeline
from regard.text import Corpus, group_references
from regard.train import metrics

MEANING = {
    "ser": "edits for each 100 symbols",
    "wer": "answers not wholly right, %",
    "exact": "answers wholly right, %",
    "chrf": "shared character sequences",
    "bleu": "shared word sequences",
}
WORST = 10
BUCKETS = 6


@dataclass(frozen=True)
class Mistake:
    """A wrong answer beside the right one it comes nearest to."""

    source: str
    said: str
    right: str
    edits: int


@dataclass(frozen=True)
class Report:
    """What came of an evaluation. `metrics` are {"value", "low", "high"}: the metric and its 95 % interval."""

    bundle: str
    task: str
    pairs: int
    questions: int
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
    search: Search,
    output: Path | None = None,
    device: str = "auto",
    as_json: bool = False,
) -> None:
    """Answer every source of the corpus, compare, and print what came of it."""
    pipeline = opened(folder, device=device, long="allow", precision=search.precision)
    with nullcontext() if output is None else _Answers(output) as kept:
        reading = corpus.read()
        questions = group_references(reading)
        with Progress(lambda: len(questions)) as progress:
            if reading.problems:
                progress.say(reading.summary())
            start = time.perf_counter()
            said, unknown = answered(pipeline, list(questions), search, progress)
            seconds = time.perf_counter() - start
        counts: dict[str, Any] = {"bundle": str(folder), "pairs": sum(map(len, questions.values())), "unknown": unknown}
        speed: dict[str, Any] = {"seconds": seconds, "per_second": len(said) / max(1e-9, seconds)}
        report = Report(**counts, **speed, **judged(pipeline, questions, said))
        try:
            if kept is not None:
                kept.write(pipeline, questions, said)
        finally:  # a disk that is full by now takes the file, not the metrics
            print(json.dumps(asdict(report), ensure_ascii=False) if as_json else told(report))


def answered(pipeline: Pipeline, sources: Sequence[str], search: Search, progress: Progress) -> tuple[list[str], int]:
    """The answers, and how many sources hold symbols that the model does not know."""
    said, unknown = [], 0
    for answers in pipeline.answers(sources, chosen(pipeline, Form(), search, Draw()), first=512):
        said.append(answers[0].text)
        unknown += bool(answers[0].unknown)
        progress.advance(1)
    return said, unknown


def judged(pipeline: Pipeline, questions: dict[str, list[str]], said: Sequence[str]) -> dict[str, Any]:
    """Metrics with their intervals, by length, and the worst mistakes."""
    kind, right = pipeline.bundle.target.kind, list(questions.values())
    task = pipeline.bundle.card.get("task") or metrics.choose(kind, (line for some in right for line in some))
    values = metrics.measure(task, kind, said, right)
    bounds = intervals(task, kind, said, right)
    lengths = [len(pipeline.bundle.source.encode(source)) for source in questions]
    inner = np.quantile(lengths, np.linspace(0, 1, BUCKETS + 1)[1:-1]).astype(int)
    parts = metrics.by_length(lengths, said, right, kind=kind, task=task, edges=sorted(set(inner.tolist())))
    found = metrics.compared(said, right, kind=kind)
    mistakes = [
        Mistake(source, answer, one.right, one.edits)
        for source, answer, one in zip(questions, said, found, strict=True)
        if one.wrong
    ]
    return {
        "task": task,
        "questions": len(questions),
        "metrics": {name: {"value": values[name], "low": low, "high": high} for name, (low, high) in bounds.items()},
        "signatures": {name: values[f"{name}_signature"] for name in bounds if f"{name}_signature" in values},
        "by_length": [
            {name: value for name, value in part.items() if not name.endswith("_signature")} for part in parts
        ],
        "worst": sorted(mistakes, key=lambda one: (-one.edits, len(one.right), one.source))[:WORST],
    }


def told(report: Report) -> str:
    """A report for people."""
    names = list(report.metrics)
    lines = [
        f"{report.questions:,} questions with {report.pairs:,} right answers, {report.per_second:,.0f} questions/s"
        + (f"; {report.unknown:,} hold symbols that the model does not know" if report.unknown else ""),
        "",
        table(
            ["metric", "value", "95 % interval"],
            [
                [f"{name} ({MEANING[name]})", f"{one['value']:.2f}", f"{one['low']:.2f} – {one['high']:.2f}"]
                for name, one in report.metrics.items()
            ],
        ),
        *(f"\n{name}: {signature}" for name, signature in report.signatures.items()),
        "\nBy length of the source, in tokens",
        table(
            ["tokens", "questions", *names],
            [
                [_span(part), f"{part['count']:,}", *(f"{part[name]:.2f}" for name in names)]
                for part in report.by_length
            ],
        ),
    ]
    if report.worst:
        rows = [[one.source, one.said, one.right, f"{one.edits}"] for one in report.worst]
        lines += ["\nThe worst mistakes", table(["source", "said", "right", "edits"], rows, left=3)]
    return "\n".join(lines)


def _span(part: dict[str, Any]) -> str:
    least, most = part["least"], part["most"]
    return f"{least}+" if most is None else f"{least}" if least == most else f"{least}–{most}"


class _Answers:
    """The file of answers, opened before there are any: a place that cannot be written to is said at once."""

    def __init__(self, path: Path) -> None:
        # Hidden, for NAME.partial may hold what a killed `regard predict` answered so far.
        path = real(path)
        self._path = self._partial = path
        if not no_file(path):
            self._partial = path.with_name(f".{path.name}.partial")
        self._file: TextIO

    def __enter__(self) -> _Answers:
        if self._path.is_dir():
            raise RegardError(f"cannot write {str(self._path)!r}: it is a folder; name a file in it")
        try:
            self._file = open(self._partial, "w", encoding="utf-8")
        except OSError as error:
            raise self._failed(error) from None
        return self

    def write(self, pipeline: Pipeline, questions: dict[str, list[str]], said: Sequence[str]) -> None:
        """A table that every command can read again: source and target, then the nearest right answer."""
        found = metrics.compared(said, list(questions.values()), kind=pipeline.bundle.target.kind)
        rows = (
            (source, answer, one.right, str(one.edits))
            for source, answer, one in zip(questions, said, found, strict=True)
        )
        try:
            with self._file as file:
                file.write("source\ttarget\tright\tedits\n")
                file.writelines("\t".join(cell.translate(SPACES) for cell in row) + "\n" for row in rows)
            if self._partial != self._path:
                self._partial.replace(self._path)
        except OSError as error:
            raise self._failed(error) from None

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what went wrong was said before
            self._file.close()
        if self._partial != self._path:
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)  # gone already when the table is whole

    def _failed(self, error: OSError) -> RegardError:
        return RegardError(f"cannot write {str(self._path)!r}: {error.strerror}")
