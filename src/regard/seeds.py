"""Several seeds of one training: mean and spread of the metrics, and one bundle from all of them:
their ensemble, or a model distilled from it."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard import bundle
from regard.api import PathLike, train
from regard.confidence_calibration import fit_answers
from regard.disk import write_atomically
from regard.distillation import distill as distill_models
from regard.errors import RegardError
from regard.loading import load
from regard.pipeline import Pipeline
from regard.quality import EvaluationReport, predict_all, report_answers
from regard.reports import write_report
from regard.reports.collect import read_outputs
from regard.training.calibration_fit import CalibrationFit
from regard.training.pairs import as_corpus
from regard.training.run import remove_run

HELD_OUT = "held_out.jsonl"
STUDENT_DROPS = ("init", "tokenizer", "tokenizers", "model", "size")  # decided by the members


@dataclass(frozen=True)
class SeedsResult:
    """The pipelines of all seeds; the bundle made of them, as a folder and as a pipeline; and
    `joint`: the metrics of their "ensemble" and of the "distilled" model, if there are."""

    pipelines: list[Pipeline]
    bundle: Path | None = None
    ensemble: Pipeline | None = None
    distilled: Pipeline | None = None
    joint: dict[str, dict[str, float]] = field(default_factory=dict)

    def metrics(self) -> list[dict[str, float]]:
        """The held-out metrics of each seed."""
        cards = (pipeline.bundle.card["metrics"] for pipeline in self.pipelines)
        return [{n: v for n, v in card.items() if isinstance(v, int | float)} for card in cards]

    def summary(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of each metric over the seeds."""
        found = self.metrics()
        return {name: mean_and_spread([one[name] for one in found]) for name in found[0]}


def train_seeds(
    pairs: Any,
    out: PathLike,
    seeds: int,
    *,
    ensemble: bool = True,
    distill: bool = False,
    **options: Any,
) -> SeedsResult:
    """Train once for each seed, in `out`/seed-1 and so on; options are those of `regard.train`.

    `out`/bundle then is their ensemble: the mean of their probabilities. With `distill`, it is one
    model with the settings of the first, trained on the ensemble's outputs, and `out` is its run.

    The last half of the models, rounded down, generate targets from their end: they make other
    errors, so that such an ensemble is better (docs/log.md). With `text.target_order` = forward or
    reversed, with `init`, or without an ensemble, all have one order.
    """
    if seeds < 1:
        raise RegardError(f"seeds must be at least 1; got {seeds}")
    settings = dict(options.pop("train", {}))
    first = int(options.pop("seed", settings.pop("seed", 1)))
    columns = {name: options.pop(name, None) for name in ("source", "target")}
    corpus = as_corpus(pairs, **columns, bad_lines=options.pop("bad_lines", "stop"))
    home = Path(out)
    if ensemble or distill:
        _prepare(home, [corpus], distill=distill, restart=options.get("restart", False))
    folders = [home / f"seed-{seed}" for seed in range(first, first + seeds)]
    text = {**options.pop("text", {}), **_given(options, "target_order")}
    mixed = (ensemble or distill) and options.get("init") is None
    requested = text.pop("target_order", "auto")
    orders = target_orders(seeds, requested) if mixed else [requested] * seeds
    pipelines = [
        train(
            corpus,
            folder,
            train={**settings, "seed": first + i},
            text={**text, "target_order": order},
            **options,
        )
        for i, (folder, order) in enumerate(zip(folders, orders, strict=True))
    ]
    options["text"] = text  # of a student, which is forward
    if int(os.environ.get("RANK", "0")) or not (ensemble or distill):
        return SeedsResult(pipelines)
    if distill:
        options["train"] = {**settings, "seed": first}
        student = _distill(corpus, home, folders, options)
        facts = student.bundle.card["distillation"]
        joint = {"ensemble": facts["teacher"]["metrics"], "distilled": facts["student"]["metrics"]}
        return SeedsResult(pipelines, home / "bundle", distilled=student, joint=joint)
    joined, report = write_ensemble(home, folders, device=options.get("device", "auto"))
    if options.get("display") is None:
        print(f"report: {home / 'report.html'}", file=sys.stderr)
    values = {name: one["value"] for name, one in report.metrics.items()}
    return SeedsResult(pipelines, home / "bundle", ensemble=joined, joint={"ensemble": values})


def target_orders(seeds: int, requested: str = "auto") -> list[str]:
    """The `text.target_order` of each model of an ensemble."""
    if requested != "auto":
        return [requested] * seeds
    return ["forward"] * (seeds - seeds // 2) + ["reversed"] * (seeds // 2)


def _given(options: dict[str, Any], name: str) -> dict[str, Any]:
    """An option that was given, by its name; it is removed from the options."""
    return {name: options.pop(name)} if name in options else {}


def write_ensemble(
    home: Path, runs: Sequence[Path], *, device: str = "auto"
) -> tuple[Pipeline, EvaluationReport]:
    """Write the ensemble of some runs as the bundle of `home`, with its metrics, its confidence
    calibrated on their held-out set, and a report."""
    joined = load(runs, device=device, long="allow")
    rows = read_outputs(runs[0] / HELD_OUT)
    references = {row.source: row.references for row in rows}
    start = time.perf_counter()
    answers = predict_all(joined, references, None, lambda count: None)
    report = report_answers(joined, references, answers, time.perf_counter() - start)
    cards = [bundle.read(run / "bundle").card for run in runs]
    calibrated = fit_answers(joined, references, answers)
    card = _card(cards, report, calibrated)
    bundle.save(home / "bundle", joined.bundle.with_card(card))
    outputs = (
        {"source": source, "output": answer.text, "references": list(some)}
        for answer, (source, some) in zip(answers, references.items(), strict=True)
    )
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in outputs)
    write_atomically(home / HELD_OUT, "".join(lines))
    write_report(home)
    return load(home, device=device), report


def _card(
    cards: Sequence[dict[str, Any]], report: EvaluationReport, calibrated: CalibrationFit
) -> dict[str, Any]:
    """The card of an ensemble: that of the first run, with the figures of the ensemble."""
    card = {name: fact for name, fact in cards[0].items() if name not in ("steps", "of")}
    signatures = {f"{name}_signature": text for name, text in report.signatures.items()}
    values = {name: one["value"] for name, one in report.metrics.items()}
    samples = [[s, report.predictions.get(s, ""), right] for s, _, right in card["samples"]]
    seeds = [one["settings"]["train"]["seed"] for one in cards]
    return {
        **card,
        "metrics": {**values, **signatures},
        "intervals": {name: [one["low"], one["high"]] for name, one in report.metrics.items()},
        "samples": samples,
        "parameters": sum(one["parameters"] for one in cards),
        "seconds": round(sum(one["seconds"] for one in cards), 1),
        "tokens": sum(one["tokens"] for one in cards),
        "ensemble": {"members": len(cards), "seeds": seeds},
        "calibration": calibrated.to_json(),
    }


def _distill(corpus: Any, home: Path, folders: Sequence[Path], options: dict[str, Any]) -> Pipeline:
    """The run of a student with the settings of the first member."""
    model = bundle.read(folders[0] / "bundle").settings.model_dump()
    size = options.get("size", "auto")
    rest = {name: value for name, value in options.items() if name not in STUDENT_DROPS}
    rest["restart"] = rest.get("restart", False) and (home / "log.jsonl").exists()
    return distill_models(list(folders), corpus, home, size=size, model=model, **rest)


def _prepare(home: Path, inputs: Sequence[Any], *, distill: bool, restart: bool) -> None:
    """Raise if another run is in the folder, whose bundle would be lost; `restart` removes it."""
    own = distill and (home / "teacher").is_dir()
    if not (home / "log.jsonl").exists() or own:
        return
    if not restart:
        raise RegardError(
            f"{str(home)!r} is the folder of another run, whose bundle would be lost; use another "
            "--out, or --restart to delete that run"
        )
    remove_run(home, inputs)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation (0 for one value)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
