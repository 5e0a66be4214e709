"""ReportData: everything a report shows, from the folder of a run or a bundle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.answer import Answer
from regard.errors import RegardError
from regard.loading import load
from regard.pipeline import Pipeline
from regard.quality import Mistake, find_mistakes
from regard.training import metrics
from regard.training.run_log import read_log

EXAMPLES = 12  # rows of the table of examples
ALIGNED = 3  # examples with an alignment
MISTAKES = 20
CONFUSIONS = 15
LENGTHS = 6  # buckets of source length
MISSING = ""  # stands for nothing in a confusion: a missing or an extra symbol


@dataclass(frozen=True)
class HeldOutRow:
    """A held-out source with the model's output and the references."""

    source: str
    output: str
    references: list[str]

    @property
    def correct(self) -> bool:
        """Whether the output equals a reference."""
        return self.output in self.references


@dataclass(frozen=True)
class Confusion:
    """How often the model wrote `output` where the reference has `expected`."""

    expected: str
    output: str
    count: int


@dataclass(frozen=True)
class ReportData:
    """The facts of a report. Without a run, there are no curves; without outputs, no examples."""

    name: str
    folder: Path
    pipeline: Pipeline
    losses: list[tuple[int, float]]
    evaluations: list[dict[str, Any]]
    rows: list[HeldOutRow]
    finished: bool

    @property
    def card(self) -> dict[str, Any]:
        """The card of the bundle."""
        return self.pipeline.bundle.card

    @property
    def task(self) -> str:
        """What the targets consist of."""
        return str(self.card.get("task", "text"))

    def examples(self) -> list[HeldOutRow]:
        """Held-out rows, evenly spread: not selected by how good they are."""
        count = min(EXAMPLES, len(self.rows))
        return [self.rows[i * len(self.rows) // count] for i in range(count)]

    def mistakes(self) -> list[Mistake]:
        """The outputs with the most edits."""
        references = {row.source: row.references for row in self.rows}
        return find_mistakes(self.task, references, [row.output for row in self.rows])[:MISTAKES]

    def alignments(self) -> list[Answer]:
        """The alignments of a few short outputs; none for a model without cross-attention."""
        if not self.pipeline.model.cross_attentions():
            return []
        short = [row for row in self.examples() if len(row.source) <= 40][:ALIGNED]
        return [self.pipeline.align(row.source, row.output) for row in short]

    def by_length(self) -> list[dict[str, Any]]:
        """The metrics by source length in tokens."""
        encode = self.pipeline.bundle.source.encode
        lengths = [len(encode(row.source)) for row in self.rows]
        ordered = sorted(lengths)
        edges = sorted({ordered[len(ordered) * i // LENGTHS] for i in range(1, LENGTHS)})
        sides = [row.output for row in self.rows], [row.references for row in self.rows]
        return metrics.by_length(lengths, *sides, task=self.task, edges=edges)

    def confusions(self) -> list[Confusion]:
        """The most frequent differences between outputs and references, symbol by symbol."""
        return count_confusions(self.task, self.rows)[:CONFUSIONS]


def collect(folder: Path) -> ReportData:
    """Read a run or a bundle."""
    pipeline = load(folder, device="cpu", long="allow")
    home = pipeline.bundle.folder
    if home is None:
        raise RegardError(f"{str(folder)!r} is an ensemble; report one of its members")
    run = home.parent if home.name == "bundle" else home
    events = list(read_log(run / "log.jsonl")) if (run / "log.jsonl").is_file() else []
    steps = [event for event in events if event["event"] == "step"]
    return ReportData(
        name=run.name,
        folder=folder,
        pipeline=pipeline,
        losses=_in_order([(event["step"], event["loss"]) for event in steps]),
        evaluations=[event for event in events if event["event"] == "evaluated"],
        rows=read_outputs(run / "held_out.jsonl"),
        finished=any(event["event"] == "finished" for event in events),
    )


def count_confusions(task: str, rows: Sequence[HeldOutRow]) -> list[Confusion]:
    """All confusions of outputs with their nearest references, the most frequent first."""
    from rapidfuzz.distance import Levenshtein

    outputs, references = [row.output for row in rows], [row.references for row in rows]
    unit = "tokens" if task == "text" else task
    counts: Counter[tuple[str, str]] = Counter()
    for row, one in zip(rows, metrics.compare(outputs, references, task=unit), strict=True):
        right = metrics.split_symbols(one.nearest, unit)
        output = metrics.split_symbols(row.output, unit)
        for edit in Levenshtein.editops(right, output):
            expected = MISSING if edit.tag == "insert" else right[edit.src_pos]
            written = MISSING if edit.tag == "delete" else output[edit.dest_pos]
            counts[expected, written] += 1
    return [Confusion(*pair, count) for pair, count in counts.most_common()]


def _in_order(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The last value of each step: a resumed run repeats some."""
    values = {step: loss for step, loss in points if isinstance(loss, int | float)}
    return sorted(values.items())


def read_outputs(path: Path) -> list[HeldOutRow]:
    """The held-out rows that a run wrote; empty without the file."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [HeldOutRow(**json.loads(line)) for line in lines]
