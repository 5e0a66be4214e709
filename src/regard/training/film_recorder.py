"""The recorder of the training film: snapshots of the weights on a logarithmic schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from regard.bundle.film_files import FOLDER, remove_after, snapshot_steps, write_snapshot
from regard.models import Model
from regard.teacher_forcing import target_logps
from regard.training.evaluation import HeldOutSet, sample_references
from regard.training.report import RunContext
from regard.training.run_log import RunLog
from regard.training.trainer import Trainer

SNAPSHOTS = 40  # of a small model, unless train.film is given
SMALL = 4_000_000  # parameters; 41 float16 snapshots of such a model have 328 MB
LOSS_PAIRS = 64  # held-out pairs whose loss is measured
LOSS_TOKENS = 64  # of each side of such a pair, at most
HEADER = 100_000  # bytes of a snapshot besides its weights, at most

HeldOutLoss = Callable[[Model], float]


def snapshot_count(given: int | None, parameters: int) -> int:
    """The number of snapshots: as given, or 40 for small models and none for others."""
    if given is not None:
        return given
    return SNAPSHOTS if parameters <= SMALL else 0


def next_step(recorded: int, last: int, total: int, count: int) -> int:
    """The step of the next snapshot, after `recorded` of them, the last one at step `last`.

    The steps left are divided by equal ratios, but each step is at least one after the other: 0, 1,
    2, 3, 4, 6, 8 … total. A run whose length changes divides what is then left. After `count`
    snapshots only the last step is recorded, so a film has at most one more than that for each
    time the run is extended.
    """
    left = count - recorded
    if left <= 1 or last >= total:
        return max(total, last + 1)
    if last == 0:
        return 1
    return min(max(total, last + 1), max(last + 1, round(last * (total / last) ** (1 / left))))


def schedule(total: int, count: int) -> list[int]:
    """The steps of all snapshots of a run of `total` steps, the untrained model first."""
    steps = [0] if count else []
    while steps and steps[-1] < total:
        steps.append(next_step(len(steps), steps[-1], total, count))
    return steps


def held_out_loss(held_out: HeldOutSet) -> HeldOutLoss:
    """The mean loss per target token on the same few held-out pairs, without label smoothing."""
    chosen = sample_references(
        {source: list(targets) for source, targets in held_out.references.items()}, LOSS_PAIRS
    )
    sources = [held_out.source.encode(source)[:LOSS_TOKENS] for source in chosen]
    targets = [held_out.target.encode(one[0])[:LOSS_TOKENS] for one in chosen.values()]

    def measure(model: Model) -> float:
        rows = target_logps(model, sources, targets, held_out.template)
        return -sum(map(sum, rows)) / sum(map(len, rows))

    return measure


class FilmRecorder:
    """Records the film of one run in a folder. Its schedule follows from the files that are there,
    so a resumed run continues it."""

    def __init__(
        self, folder: Path, count: int, trainer: Trainer, measure: HeldOutLoss, log: RunLog
    ) -> None:
        self.folder, self.count, self.trainer = folder, count, trainer
        self.measure, self.log = measure, log
        if count:
            remove_after(folder, trainer.step)  # the run will train these steps again
        self.steps = snapshot_steps(folder) if count else []

    def record(self, full_model: Callable[[], Model], *, end: bool = False) -> float:
        """Take a snapshot if one is due, or at the end of training; returns the seconds it took.

        Every process must call it. `full_model` gathers the weights of all processes; it is called
        for a snapshot only.
        """
        step = self.trainer.step
        if not self.count or (self.steps and step <= self.steps[-1]):
            return 0.0
        due = 0
        if self.steps:
            due = next_step(len(self.steps), self.steps[-1], self.trainer.total, self.count)
        if step < due and not end:
            return 0.0
        if self.trainer.world.device.type == "cuda":
            torch.cuda.synchronize()  # the steps in the queue are not part of the snapshot
        start = time.monotonic()
        model = full_model()
        self.steps.append(step)
        if self.trainer.world.first:
            loss = self.measure(model)
            write_snapshot(self.folder, step, loss, dict(model.named_parameters()))
            self.log.write("snapshot", step=step, loss=loss)
        return time.monotonic() - start


def open_film(
    trainer: Trainer, given: int | None, held_out: HeldOutSet, context: RunContext
) -> FilmRecorder:
    """The recorder of a run, and a message that states the disk space."""
    parameters = sum(weight.numel() for weight in trainer.weights)
    count = snapshot_count(given, parameters)
    folder = context.folder / FOLDER
    if count and context.world.first and not trainer.step:
        most = film_bytes(count, parameters) / 1e6
        context.display.message(f"training film: {count} snapshots, up to {most:,.0f} MB")
    with context.world.first_process_first():  # rank 0 removes what will be recorded again
        return FilmRecorder(folder, count, trainer, held_out_loss(held_out), context.log)


def film_bytes(count: int, parameters: int) -> int:
    """The disk space of a film, at most: float16 weights and a header for each snapshot."""
    return (count + 1) * (2 * parameters + HEADER)
