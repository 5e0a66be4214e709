"""A run: read → choose → tokenize → plan → train → report, from files of pairs to a bundle.

The same call after an interruption resumes the run, with bit-identical results on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard import bundle
from regard.config import TextSettings, TrainSettings
from regard.text import Corpus
from regard.training.auto_settings import RequestedSettings, check_settings
from regard.training.dataset import choose, tokenize
from regard.training.display import Display, open_display
from regard.training.distributed import World, world
from regard.training.loop import train
from regard.training.plan import plan
from regard.training.raw_data import MAX_HELD_OUT, read
from regard.training.report import RunContext, report
from regard.training.run_log import RunLog


@dataclass(frozen=True)
class Job:
    """What to train, on which data, and the folder of the run."""

    corpus: Corpus
    out: Path
    held_out: Corpus | None = None
    family: str = "transformer"
    size: str = "auto"
    model: dict[str, Any] = field(default_factory=dict)
    text: TextSettings = field(default_factory=TextSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    device: str = "auto"
    tensorboard: bool = False
    command: Sequence[str] = ()

    @property
    def settings(self) -> RequestedSettings:
        """The settings of the model, the text and the training."""
        return RequestedSettings(self.family, self.size, self.model, self.train, self.text)


def run(job: Job, display: Display | None = None) -> dict[str, Any]:
    """Train and save a bundle in `job.out / "bundle"`; returns its card."""
    job = replace(job, out=Path(job.out))
    if not isinstance(job.corpus, Corpus):
        job = replace(job, corpus=Corpus(job.corpus))
    check_settings(job.settings)
    bundle.check_destination(job.out / "bundle")
    with _open_context(job, display) as context:
        processes = context.world
        message = context.display.message if processes.first else (lambda text: None)
        device = "cuda" if processes.device.type == "cuda" else "cpu"
        with processes.first_process_first():  # rank 0 writes the data, the others open it
            data = read(
                job.corpus,
                job.held_out,
                job.text,
                seed=job.train.seed,
                folder=job.out / "data",
                max_held_out=MAX_HELD_OUT[device],
            )
            tokenizers = choose(data)
            dataset = tokenize(tokenizers, message)
        settings = plan(dataset, job.settings, processes, job.out / "settings.json")
        result = train(settings, dataset, context)
        return report(result, context)


@contextmanager
def _open_context(job: Job, display: Display | None) -> Iterator[RunContext]:
    """The processes, display and log of a run, with random numbers isolated from the caller's."""
    with (
        torch.random.fork_rng(devices=[]),
        world(job.device) as processes,
        display or open_display() as shown,
        _open_log(job, processes) as log,
    ):
        yield RunContext(job.out, processes, shown, log, job.command)


def _open_log(job: Job, processes: World) -> RunLog:
    """The log of the run, which only rank 0 writes."""
    if not processes.first:
        return RunLog(os.devnull)
    board = job.out / "tensorboard" if job.tensorboard else None
    return RunLog(job.out / "log.jsonl", tensorboard=board)
