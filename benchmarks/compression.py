"""Smaller and faster models: distillation and int8, quality on the test sets and speed on a CPU.

    python benchmarks/compression.py DATA --out OUT [--tasks cmudict] [--device cuda]

A teacher of 6 + 6 layers is trained by the recipe, a student of 6 + 2 layers is distilled from it
with the same recipe, and the teacher is quantised to int8. Quality is that of the default search on
the native engine. Speeds are measured on one core; teacher and student alternate. The run in OUT
resumes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Check, report
from quality_scores import default_search
from quality_sets import READERS, write

import regard
from regard.config import read_toml
from regard.distillation import distill
from regard.quantization import quantize
from regard.training import metrics

CONFIGS = Path(__file__).parent.parent / "configs"
MAX_INT8_LOSS = 0.2
MIN_SPEEDUP = 2.0
ROUNDS, ONE_BY_ONE = 7, 8
BATCH, BEAM = 64, 4  # the default beam


@dataclass(frozen=True)
class Task:
    """A data set, its metric, the loss allowed to a student, and what differs from the recipe."""

    data: str
    metric: str
    max_student_loss: float
    model: dict[str, int]
    train: dict[str, float]


LAYERS = {"encoder_layers": 6, "decoder_layers": 6}
TASKS = {
    "multi30k": Task(
        "multi30k-en-de-raw",
        "bleu",
        1.0,
        {**LAYERS, "width": 512, "heads": 8, "ffn_width": 1_024},
        {"steps": 4_500, "learning_rate": 2.5e-3},
    ),
    "cmudict": Task(
        "cmudict", "sequence_error_rate", 0.5, LAYERS, {"epochs": 50, "learning_rate": 2e-3}
    ),
}


def train_both(task: Task, data: Path, out: Path, device: str) -> None:
    """Train the teacher and the student, and quantise the teacher; resumes what has begun."""
    parts, recipe = out / "parts", read_toml(CONFIGS / f"{task.data}.toml")
    if not parts.exists():
        write(READERS[task.data](data), parts)
    pairs, held_out = parts / "train.tsv", parts / "dev.tsv"
    settings = {"held_out": held_out, "device": device, "train": {**recipe["train"], **task.train}}
    model = {**recipe["model"], **task.model}
    regard.train(pairs, out / "teacher", text=recipe["text"], model=model, **settings)
    # Without the recipe's dropout and R-Drop, students overfit: on Multi30k by 2 BLEU.
    model = {"dropout": model["dropout"]}
    distill(out / "teacher", pairs, out / "student", original=True, model=model, **settings)
    if not (out / "teacher/bundle-int8").exists():
        quantize(out / "teacher")


def measure_speed(
    pipelines: Sequence[regard.Pipeline], sources: Sequence[str], *, batch: bool
) -> tuple[list[float], float]:
    """Sources per second of each pipeline, and the median ratio of the second to the first."""
    rounds = []
    for index in range(ROUNDS + 1):
        start = index * BATCH % (len(sources) - BATCH)
        chosen = sources[start : start + (BATCH if batch else ONE_BY_ONE)]
        speeds = []
        for pipeline in pipelines:
            before = time.process_time()
            if batch:
                list(pipeline.many(chosen))
            else:
                for source in chosen:
                    pipeline(source)
            speeds.append(len(chosen) / (time.process_time() - before))
        rounds.append(speeds)
    measured = rounds[1:]  # the first round is for warming up
    medians = [statistics.median(column) for column in zip(*measured, strict=True)]
    return medians, statistics.median(student / teacher for teacher, student in measured)


def ceiling(pipelines: Sequence[regard.Pipeline], *, encoder: float) -> float:
    """The ratio of the weights that an output token reads, with a share of the encoder's."""
    work = []
    for pipeline in pipelines:
        model = pipeline.model
        counts = {
            name: sum(p.numel() for p in part.parameters())
            for name, part in (("encoder", model.encoder), ("decoder", model.decoder))
        }
        output = model.output_table.numel()
        work.append(counts["decoder"] + output + encoder * counts["encoder"])
    return work[0] / work[1]


def measure(name: str, data: Path, out: Path, device: str) -> list[Check]:
    """All figures of a task."""
    task = TASKS[name]
    train_both(task, data, out / name, device)
    tests = READERS[task.data](data).tests
    folders = {kind: out / name / kind for kind in ("teacher", "student")}
    folders["int8"] = out / name / "teacher/bundle-int8"
    loaded = {
        kind: regard.load(folder, device="cpu", long="allow") for kind, folder in folders.items()
    }
    assert {one.engine for one in loaded.values()} == {"native"}
    unit = "text" if task.metric == "bleu" else "phones"
    found = {
        kind: default_search(pipeline, tests, unit, task.metric)
        for kind, pipeline in loaded.items()
    }
    sign = 1 if task.metric == "bleu" else -1
    loss = {kind: sign * (found["teacher"] - value) for kind, value in found.items()}
    label = metrics.label(task.metric)
    checks = [
        Check(f"{name}, {kind}: {label} on test", found[kind], None, None, True) for kind in found
    ]
    limits = {"student": task.max_student_loss, "int8": MAX_INT8_LOSS}
    checks += [
        Check(f"{name}, {kind}: loss of {label}", loss[kind], None, limit, loss[kind] <= limit)
        for kind, limit in limits.items()
    ]
    both = [loaded["teacher"], loaded["student"]]
    sources = [one.source for examples in tests.values() for one in examples]
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(affinity)})
    for batch in (False, True):
        speeds, ratio = measure_speed(both, sources, batch=batch)
        what = f"{name}, {BATCH if batch else 'one'} source{'s' if batch else ''}"
        for kind, speed in zip(("teacher", "student"), speeds, strict=True):
            checks.append(Check(f"{what}, {kind}: sources/s", speed, None, None, True))
        target = None if batch else MIN_SPEEDUP
        # One source is bound by the weights that are read, the encoder's once for all tokens;
        # many are bound by arithmetic, of which each decoder layer does four times as much (beam).
        most = ceiling(both, encoder=1 / BEAM if batch else 0.0)
        good = target is None or ratio >= target
        checks.append(Check(f"{what}: student over teacher", ratio, most, target, good))
    os.sched_setaffinity(0, affinity)
    return checks


def main() -> None:
    """Run the chosen tasks and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--device", default="auto", help="of the training: cpu, cuda or auto")
    options = parser.parse_args()
    checks = []
    for name in options.tasks:
        checks += measure(name, options.data, options.out, options.device)
    report("compression", checks)


if __name__ == "__main__":
    main()
