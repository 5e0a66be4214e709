"""A run: from files of pairs to a bundle. The same call after any interruption goes on as if nothing had happened."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard import bundle
from regard.config import TextSettings, TrainSettings
from regard.device import resolve_precision
from regard.errors import RegardError
from regard.models import Model, build
from regard.text import Corpus
from regard.threads import training_threads
from regard.train import checkpoint, metrics
from regard.train.auto_settings import Plan, check
from regard.train.card import card
from regard.train.distributed import World, whole, world
from regard.train.evaluation import check_finite
from regard.train.interruption import Interrupted, interruptible
from regard.train.journal import Journal
from regard.train.loop import Trainer, seconds_a_step
from regard.train.loss_log import Look, Losses
from regard.train.prepare import MOST_QUESTIONS, Prepared, prepare
from regard.train.run_length import ROOM, Timer
from regard.train.run_settings import decided
from regard.train.view import Pace, View, live


@dataclass(frozen=True)
class Job:
    """What to train, on what, and where to leave it."""

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


def run(job: Job, view: View | None = None) -> dict[str, Any]:
    """Train, and leave a bundle in `job.out / "bundle"`. Returns the facts of its card."""
    if not isinstance(job.corpus, Corpus):
        job = replace(job, corpus=Corpus(job.corpus))
    job = replace(job, out=Path(job.out))
    check(job.family, job.size, job.model, job.train)
    bundle.check_destination(job.out / "bundle")
    chance = torch.random.fork_rng(devices=[])  # what a program draws after a run does not depend on it
    with chance, world(job.device) as here, view or live() as view, _journal(job, here) as journal:
        say = view.said if here.first else (lambda text: None)
        if not here.first:  # the first process writes the data; the others open it
            here.wait()
        most = MOST_QUESTIONS["cuda" if here.device.type == "cuda" else "cpu"]  # torch knows other devices, too
        data = prepare(job.corpus, job.held_out, job.text, job.train.seed, job.out / "data", say, most=most)
        if here.first:
            here.wait()
        asked = job.family, job.size, job.model, job.train
        found = decided(job.out / "settings.json", asked, job.text, data, here)
        with interruptible() as stopped:
            return Running(job, here, data, found, view, journal).go(stopped)


class Running:
    """A run under way."""

    def __init__(self, job: Job, here: World, data: Prepared, plan: Plan, view: View, journal: Journal) -> None:
        self.job, self.here, self.data, self.plan = job, here, data, plan
        self.view, self.journal, self.checkpoints = view, journal, job.out / "checkpoints"
        self.batches = data.batches(plan.train, plan.batch_tokens, here.size, here.rank)
        self.model = self._model()
        self.losses = Losses(self.batches, journal, here)
        self.threads = training_threads(here.device, here.size)
        self.threads_reported = self.threads.count

    def go(self, stopped: Any) -> dict[str, Any]:
        """Start or go on, to the end."""
        saved = checkpoint.read(self.checkpoints) if self.here.first else None
        self.here.wait()  # one after another: reading sets a damaged one aside, and a new one is written next
        saved = saved if self.here.first else checkpoint.read(self.checkpoints)
        self.here.wait()
        total, evaluating = (saved.facts["course"]["planned"], 0.0) if saved else self._total()
        trainer = self._trainer(self.model, total)
        if saved:
            trainer.restore(saved)
            self.threads_reported = trainer.threads.count
            if saved.warning:
                self.view.said(saved.warning)
        else:
            trainer.facts = {"best": None, "since": 0, "tokens": 0, "seconds": 0.0, "history": []}
            trainer.facts["evaluating"] = evaluating
            self._save(trainer)  # so that a measured number of steps is never measured again
        self._begin(trainer, resumed=saved is not None)
        self._loop(trainer, stopped)
        return self._end(trainer)

    def _loop(self, trainer: Trainer, stopped: Any) -> None:
        """Update, look, evaluate and save, until the steps are done or nothing improves."""
        facts, settings = trainer.facts, self.plan.train
        since, mark = time.monotonic(), time.monotonic()
        timer = None if settings.minutes is None else Timer(settings.minutes, trainer.step, facts["seconds"])
        while trainer.step < trainer.total and not facts.get("stopped"):
            trainer.tune()
            if trainer.threads.count != self.threads_reported:
                self._report_threads(trainer)
            parts, rate = trainer.halvings, trainer.rate
            loss, read = trainer.advance()
            if trainer.halvings > parts and self.here.first:
                self._halved(trainer)
            facts["tokens"] += read
            self.losses.add(Look(trainer.step, trainer.epoch, trainer.at, loss, rate, facts["tokens"]))
            now = time.monotonic()
            facts["seconds"], mark = facts["seconds"] + now - mark, now
            due = trainer.course.due(trainer.step, settings.evaluations)
            if not due and not self.losses.enough:  # to look, or to agree with other processes, is to wait for a GPU
                continue
            self._look(trainer)  # what is not finite is not evaluated, nor saved
            total = None if timer is None else self._total_by(timer, trainer)
            if due:
                self._evaluate(trainer, timer)
            # The first process decides for all: saving is done together, and clocks differ.
            late, signal, total = self.here.agreed((now - since >= settings.checkpoint_seconds, stopped(), total))
            if total is not None:
                trainer.course.move(trainer.step, total)
            if due or late or signal is not None:
                self._save(trainer)
                since = time.monotonic()
            if signal is not None:
                self.journal.write("interrupted", step=trainer.step, signal=signal)
                raise Interrupted(f"{signal}: saved at step {trainer.step:,}; the same command goes on from there")

    def _look(self, trainer: Trainer) -> None:
        """Show how the latest steps went."""
        last = self.losses.look()
        if last is not None and self.here.first:
            facts, minutes = trainer.facts, self.plan.train.minutes
            left = facts["seconds"] / trainer.step * (trainer.total - trainer.step)
            if minutes is not None:
                left = ROOM * 60 * minutes - facts["seconds"]
            speed = facts["tokens"] / facts["seconds"]
            self.view.step(Pace(trainer.step, trainer.total, self.losses.smooth, last.rate, speed, left))

    def _evaluate(self, trainer: Trainer, timer: Timer | None) -> None:
        """Decode the held-out part with the averaged weights; keep the best bundle."""
        trainer.average.evaluated()
        facts, start = trainer.facts, time.monotonic()
        with trainer.average.lent():
            model = self._whole()
            if self.here.first:
                check_finite(model, trainer.step)
                found, samples = self.data.exam.take(model, self.here.device)
                _, value, higher = metrics.main(found)
                gain = 0.0 if facts["best"] is None else value - facts["best"] if higher else facts["best"] - value
                better = gain >= 0  # of equals the later one has learned longer
                facts["since"] = 0 if gain > 0 or facts["best"] is None else facts["since"] + 1
                facts["best"] = value if better else facts["best"]
                facts["history"] = [*facts["history"], {"step": trainer.step, **found}]
                if better:
                    bundle.save(self.job.out / "bundle", self._bundle(trainer, model, found))
                self.view.evaluated(trainer.step, found, samples)
                self.journal.write("evaluated", step=trainer.step, metrics=found, samples=samples, best=better)
        facts["since"] = self.here.agreed(facts["since"])
        if self.plan.train.patience is not None and facts["since"] >= self.plan.train.patience:
            facts["stopped"] = f"no better for {facts['since']} evaluations"
        facts["evaluating"] = time.monotonic() - start
        if timer is not None:
            timer.paused += facts["evaluating"]

    def _whole(self) -> Model:
        """The model, put together if it is sharded; all must call it."""
        if self.here.size == 1 or self.plan.train.parallel != "fsdp":
            return self.model
        weights, model = whole(dict(self.model.named_parameters())), self._model()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(weights[name])
        return model

    def _bundle(self, trainer: Trainer, model: Model, found: dict[str, Any]) -> bundle.Bundle:
        exam, job = self.data.exam, self.job
        told = card(trainer, self.data, self.plan, found, text=job.text, command=job.command)
        return bundle.Bundle(model, exam.source, exam.target, self.plan.model, told)

    def _begin(self, trainer: Trainer, *, resumed: bool) -> None:
        if not self.here.first:
            return
        changed = resolve_precision(self.plan.train.precision, self.here.device)[1]
        notes = [changed] if changed else []
        for line in notes if resumed else [*self.data.decisions, *self.plan.decisions]:
            self.view.said(line)
        facts = {
            "model": self.plan.name,
            "parameters": f"{sum(p.numel() for p in self.model.parameters()):,}",
            "pairs": f"{len(self.data.lengths[0]):,} to learn from, {len(self.data.exam.questions):,} held out",
            "steps": f"{trainer.total:,} of about {self.plan.batch_tokens:,} tokens on {self.here.device}",
        }
        if resumed:
            facts["goes on"] = f"from step {trainer.step:,}"
        self.view.started(facts)
        self.journal.write("resumed" if resumed else "started", step=trainer.step, total=trainer.total, facts=facts)

    def _end(self, trainer: Trainer) -> dict[str, Any]:
        self.here.wait()
        if not (self.job.out / "bundle").exists():
            raise RegardError(
                f"this run is done and its bundle was moved from {str(self.job.out)!r}; use another --out"
            )
        told = bundle.load(self.job.out / "bundle").card
        if self.here.first:
            self.journal.write("finished", step=trainer.step, metrics=told["metrics"])
            shown = {k: v for k, v in told["metrics"].items() if not k.endswith("signature")}
            why = {"stopped": trainer.facts["stopped"]} if trainer.facts.get("stopped") else {}
            minutes = f"{trainer.facts['seconds'] / 60:.1f}"
            self.view.finished({**shown, **why, "minutes": minutes, "bundle": str(self.job.out / "bundle")})
        return told

    def _report_threads(self, trainer: Trainer) -> None:
        """Report the new number of threads, and save it: a resumed run starts with the same."""
        count, rates = trainer.threads.count, {n: round(rate) for n, rate in trainer.threads.rates.items()}
        speeds = ", ".join(f"{rate:,} with {n}" for n, rate in rates.items())
        self.view.said(f"CPU threads: {count} from step {trainer.step + 1:,} on; tokens/s: {speeds}")
        self.journal.write("threads", step=trainer.step, count=count, rates=rates)
        self.threads_reported = count
        self._look(trainer)
        self._save(trainer)

    def _halved(self, trainer: Trainer) -> None:
        parts = 2**trainer.halvings
        self.view.said(f"memory ran out at step {trainer.step:,}: it was done again, and steps now go in {parts} parts")
        self.journal.write("halved", step=trainer.step, parts=parts)

    def _save(self, trainer: Trainer) -> None:
        trainer.save(self.checkpoints)
        self.here.wait()

    def _model(self) -> Model:
        torch.manual_seed(self.plan.train.seed)
        exam = self.data.exam
        return build(self.plan.model, len(exam.source), len(exam.target)).to(self.here.device)

    def _trainer(self, model: Model, total: int) -> Trainer:
        settings = self.plan.train
        assert settings.learning_rate is not None
        return Trainer(
            model, self.batches, settings, total, self.here, rate=settings.learning_rate, threads=self.threads
        )

    def _total_by(self, timer: Timer, trainer: Trainer) -> int | None:
        """Where a run of so many minutes should end, if its speed says that it is not where it was thought to be."""
        facts = trainer.facts
        reserved = facts["evaluating"] * max(1, self.plan.train.evaluations - len(facts["history"]))
        return timer.total(trainer.course, trainer.step, facts["seconds"], reserved)

    def _total(self) -> tuple[int, float]:
        """How many steps: as asked, or as many as the minutes allow at the rate measured now; and, if that was
        measured, how many seconds an evaluation takes."""
        settings = self.plan.train
        if settings.steps is not None:
            return settings.steps, 0.0
        if settings.minutes is None:
            assert settings.epochs is not None
            return max(1, round(settings.epochs * self.batches.steps(0))), 0.0
        each = seconds_a_step(lambda: self._trainer(self._model(), 1_000))
        start = time.perf_counter()
        if self.here.first:
            self.data.exam.take(self._model(), self.here.device)
        evaluating = time.perf_counter() - start
        total = max(1, int((60 * settings.minutes * ROOM - evaluating * settings.evaluations) / each))
        return self.here.agreed((total, evaluating))


def _journal(job: Job, here: World) -> Journal:
    """The journal of the run, which the first process alone writes."""
    if not here.first:
        return Journal(os.devnull)
    return Journal(job.out / "journal.jsonl", tensorboard=job.out / "tensorboard" if job.tensorboard else None)
