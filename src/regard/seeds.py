"""Several seeds of one training: mean and spread of the metrics, and their ensemble."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.api import PathLike, train
from regard.bundle import locate
from regard.disk import write_atomically
from regard.errors import RegardError
from regard.loading import ENSEMBLE, load
from regard.pipeline import Pipeline
from regard.quality import EvaluationReport, evaluate_pipeline
from regard.reports.collect import read_outputs
from regard.training.pairs import as_corpus


@dataclass(frozen=True)
class SeedsResult:
    """The pipelines of all seeds, and the metrics of their ensemble if one was written."""

    pipelines: list[Pipeline]
    ensemble: Pipeline | None = None
    ensemble_report: EvaluationReport | None = None

    def metrics(self) -> list[dict[str, float]]:
        """The held-out metrics of each seed."""
        cards = (pipeline.bundle.card["metrics"] for pipeline in self.pipelines)
        return [{n: v for n, v in card.items() if isinstance(v, int | float)} for card in cards]

    def summary(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of each metric over the seeds."""
        found = self.metrics()
        return {name: mean_and_spread([one[name] for one in found]) for name in found[0]}


def train_seeds(
    pairs: Any, out: PathLike, seeds: int, *, ensemble: bool = False, **options: Any
) -> SeedsResult:
    """Train once for each seed, in `out`/seed-1 and so on; options are those of `regard.train`.

    With `ensemble`, `out`/ensemble has copies of all bundles, which `regard.load` opens as one
    model: the mean of their probabilities.
    """
    if seeds < 1:
        raise RegardError(f"seeds must be at least 1; got {seeds}")
    settings = dict(options.pop("train", {}))
    first = int(options.pop("seed", settings.pop("seed", 1)))
    columns = {name: options.pop(name, None) for name in ("source", "target")}
    corpus = as_corpus(pairs, **columns, bad_lines=options.pop("bad_lines", "stop"))
    folders = [Path(out) / f"seed-{seed}" for seed in range(first, first + seeds)]
    pipelines = [
        train(corpus, folder, train={**settings, "seed": first + i}, **options)
        for i, folder in enumerate(folders)
    ]
    if not ensemble:
        return SeedsResult(pipelines)
    joined = load(write_ensemble(Path(out) / "ensemble", [folder / "bundle" for folder in folders]))
    rows = read_outputs(folders[0] / "held_out.jsonl")
    references = {row.source: row.references for row in rows}
    return SeedsResult(pipelines, joined, evaluate_pipeline(joined, references))


def write_ensemble(folder: Path, bundles: Sequence[Path]) -> Path:
    """Copy bundles to a folder that `regard.load` opens as an ensemble."""
    if folder.exists() and not (folder / ENSEMBLE).exists():
        raise RegardError(f"{str(folder)!r} is not an ensemble and would be lost; move it")
    shutil.rmtree(folder, ignore_errors=True)
    members = []
    for number, bundle in enumerate(bundles, 1):
        shutil.copytree(locate(bundle), folder / str(number))
        members.append(str(number))
    write_atomically(folder / ENSEMBLE, json.dumps({"members": members}))
    load(folder, device="cpu")  # raises if the tokenizers differ
    return folder


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation (0 for one value)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
