"""A run: read → choose → tokenize → plan → train → report, from files of pairs to a bundle.

The same call after an interruption resumes the run, with bit-identical results on a CPU.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard import bundle
from regard.config import TextSettings, TrainSettings
from regard.errors import RegardError
from regard.text.corpus import Corpus
from regard.text.files import DiskFile
from regard.training.auto_settings import RequestedSettings, check_settings
from regard.training.callbacks import Callback
from regard.training.dataset import tokenize
from regard.training.display import Display, open_display
from regard.training.distributed import World, world
from regard.training.evaluation import Metric
from regard.training.fine_tuning import GivenTokenizers, InitialModel
from regard.training.loop import train
from regard.training.pairs import PairSource, as_corpus
from regard.training.plan import plan
from regard.training.preparation_progress import PreparationProgress
from regard.training.raw_data import MAX_HELD_OUT, check_data_folder, read
from regard.training.report import RunContext, report
from regard.training.run_calibration import calibrate
from regard.training.run_log import RunLog
from regard.training.tokenizer_pair import choose

RUN_FILES = (
    *("data", "checkpoints", "bundle", "film", "tensorboard"),
    *("settings.json", "held_out.jsonl", "report.html"),
)


@dataclass(frozen=True)
class Job:
    """What to train, on which data, and the folder of the run."""

    corpus: PairSource
    out: Path
    held_out: PairSource | None = None
    family: str = "transformer"
    size: str = "auto"
    model: dict[str, Any] = field(default_factory=dict)
    text: TextSettings = field(default_factory=TextSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    device: str = "auto"
    tensorboard: bool = False
    command: Sequence[str] = ()
    init: Path | None = None
    tokenizers: Path | None = None  # of a bundle whose tokenizers are used
    tokenizer: Path | None = None  # a tokenizer.json for both sides, or its folder
    extend: bool = False
    restart: bool = False
    callbacks: Sequence[Callback] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def settings(self) -> RequestedSettings:
        """The settings of the model, the text and the training."""
        names = self.family, self.size, self.model
        return RequestedSettings(*names, self.train, self.text, self.init is not None)


def run(job: Job, display: Display | None = None) -> dict[str, Any]:
    """Train and save a bundle in `job.out / "bundle"`; returns its card."""
    job = replace(job, out=Path(job.out), corpus=as_corpus(job.corpus))
    initial = None if job.init is None else InitialModel.load(job.init)
    if initial is not None:
        job = _use_model_of(initial, job)
    given = _given_tokenizers(job, initial)
    check_settings(job.settings)
    if job.restart:
        remove_run(job.out, [job.corpus, job.held_out])
    bundle.check_destination(job.out / "bundle")
    with _open_context(job, display, initial) as context:
        processes = context.world
        message = context.display.message if processes.first else (lambda text: None)
        device = "cuda" if processes.device.type == "cuda" else "cpu"
        with processes.first_process_first():  # rank 0 writes the data, the others open it
            progress = PreparationProgress(message)
            data = read(
                job.corpus,
                job.held_out,
                job.text,
                folder=job.out / "data",
                max_held_out=MAX_HELD_OUT[device],
                tokenizers=given,
                progress=progress,
            )
            progress.stage("choosing and training the tokenizers")
            dataset = tokenize(choose(data), message, progress)
            del data  # a sample of the texts, which training does not need
        dataset = replace(dataset, held_out=replace(dataset.held_out, extra_metrics=job.metrics))
        path = job.out / "settings.json"
        settings = plan(dataset, job.settings, processes, path, extend=job.extend)
        result = train(settings, dataset, context)
        calibrate(dataset, context)
        return report(result, context)


def _use_model_of(initial: InitialModel, job: Job) -> Job:
    """The job with the model settings of the initial model."""
    settings = initial.model_settings
    if job.size != "auto":
        raise RegardError(f"--size {job.size} is fixed by the initial model; leave it out")
    return replace(job, family=settings["kind"], model={**settings, **job.model})


def _given_tokenizers(job: Job, initial: InitialModel | None) -> GivenTokenizers | None:
    """The tokenizers of the initial model or of the given bundle, if there is one."""
    sources = {"init": job.init, "tokenizers": job.tokenizers, "tokenizer": job.tokenizer}
    if len(named := [name for name, path in sources.items() if path is not None]) > 1:
        raise RegardError(f"{' and '.join(named)} name different tokenizers; give one of them")
    if initial is not None:
        given = initial.tokenizers
    elif job.tokenizer is not None:
        given = GivenTokenizers.from_file(job.tokenizer)
    elif job.tokenizers is not None:
        given = GivenTokenizers.load(job.tokenizers)
    else:
        return None
    if job.text.shared_vocabulary is not None or job.text.vocabulary_size is not None:
        raise RegardError(f"the vocabulary is that of the {given.role}; leave out text settings")
    return given


@contextmanager
def _open_context(
    job: Job, display: Display | None, initial: InitialModel | None
) -> Iterator[RunContext]:
    """The processes, display and log of a run, with random numbers isolated from the caller's."""
    with (
        torch.random.fork_rng(devices=[]),
        world(job.device) as processes,
        display or open_display() as shown,
        _open_log(job, processes) as log,
    ):
        callbacks = job.callbacks if processes.first else ()
        yield RunContext(job.out, processes, shown, log, job.command, callbacks, initial)


def remove_run(out: Path, inputs: Sequence[Any] = ()) -> None:
    """Remove the files of a run from its folder; raises if there are others in its place, or if
    one of them is a file of the corpora `inputs`."""
    if int(os.environ.get("RANK", "0")) or not out.exists():
        return
    if any(out.iterdir()) and not (out / "log.jsonl").exists():
        raise RegardError(f"{str(out)!r} is not the folder of a run; use another --out")
    check_data_folder(out / "data")
    files = [file for corpus in inputs if isinstance(corpus, Corpus) for file in corpus.files]
    for path in (Path(os.path.realpath(one.path)) for one in files if isinstance(one, DiskFile)):
        if any(path.is_relative_to(os.path.realpath(out / name)) for name in RUN_FILES):
            raise RegardError(
                f"--restart would delete the input {str(path)!r}; move it out of {str(out)!r}"
            )
    with RunLog(out / "log.jsonl"):  # raises if another process trains here
        for name in RUN_FILES:
            path = out / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    (out / "log.jsonl").unlink(missing_ok=True)


def _open_log(job: Job, processes: World) -> RunLog:
    """The log of the run, which only rank 0 writes."""
    if not processes.first:
        return RunLog(os.devnull)
    board = job.out / "tensorboard" if job.tensorboard else None
    return RunLog(job.out / "log.jsonl", tensorboard=board)
