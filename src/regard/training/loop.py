"""Stage 5 of a run, train: update, evaluate and save until the steps are done or a signal comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from regard.errors import RegardError
from regard.models import Model, build
from regard.threads import training_threads
from regard.training import checkpoint
from regard.training.auto_settings import ResolvedSettings
from regard.training.dataset import Dataset
from regard.training.display import StepStatus
from regard.training.distributed import gather_full
from regard.training.film_recorder import open_film
from regard.training.fine_tuning import freeze_parameters
from regard.training.interruption import Interrupted, interruptible
from regard.training.loss_log import LossEntry, LossLog
from regard.training.model_selection import evaluate_and_select
from regard.training.plan import store_length
from regard.training.report import (
    RunContext,
    TrainingProgress,
    TrainResult,
    report_start,
)
from regard.training.schedule import TIME_SHARE, RunLength, TimeLimit
from regard.training.step_speed import measure_step_seconds
from regard.training.trainer import Trainer


def train(settings: ResolvedSettings, dataset: Dataset, context: RunContext) -> TrainResult:
    """Stage 5: train from the start or the last checkpoint to the end, saving the best bundle."""
    loop = TrainingLoop(settings, dataset, context)
    with interruptible() as interruption:
        loop.run(interruption)
    return TrainResult(loop.trainer.step, loop.progress)


class TrainingLoop:
    """The training of one run, from the start or a checkpoint."""

    def __init__(self, settings: ResolvedSettings, dataset: Dataset, context: RunContext) -> None:
        self.settings, self.dataset, self.context = settings, dataset, context
        self.world, self.display, self.log = context.world, context.display, context.log
        self.checkpoints = context.folder / "checkpoints"
        size, rank = self.world.size, self.world.rank
        self.batches = dataset.batches(settings.train, settings.batch_tokens, size, rank)
        self.model = self._build_model()
        self.losses = LossLog(self.batches, self.log, self.world)
        self.threads = training_threads(self.world.device, size)
        with self.world.first_process_first():  # rank 0 renames damaged checkpoints
            saved = checkpoint.read(self.checkpoints)
        self.resumed = saved is not None
        self.progress = TrainingProgress()
        if saved and settings.extended:
            total = self._extended_total(saved.progress)
        else:
            total = saved.progress["length"]["planned"] if saved else self._choose_total()
        self.trainer = self._build_trainer(self.model, total)
        if saved:
            self.progress = TrainingProgress(**self.trainer.restore(saved))
            if saved.warning:
                self.display.message(saved.warning)
        if saved and settings.extended:
            self.trainer.length = RunLength(total, total)
            self.progress.stopped, self.progress.since_best = None, 0
        if not saved or settings.extended:
            self._save()  # so that a measured number of steps is never measured again
        if settings.extended and self.world.first:
            store_length(context.folder / "settings.json", settings)
        self.threads_reported = self.threads.count
        self.film = open_film(self.trainer, settings.train.film, dataset.held_out, context)
        minutes = settings.train.minutes
        self.time_limit = None
        if minutes is not None:
            self.time_limit = TimeLimit(minutes, self.trainer.step, self.progress.seconds)

    def run(self, interruption: Callable[[], str | None]) -> None:
        """Train to the end. `interruption`: the name of a signal that was received, if any."""
        if self.world.first:
            resumed = self.resumed
            report_start(
                self.trainer,
                self.dataset,
                self.settings,
                self.context,
                resumed=resumed,
                stopped=self.progress.stopped is not None,
            )
        trainer, progress = self.trainer, self.progress
        settings = self.settings.train
        self._record_film()
        if self.context.initial is not None and not progress.history:
            self._evaluate()  # fine-tuning returns the initial model if nothing improves it
        saved_at = mark = time.monotonic()
        while trainer.step < trainer.total and not progress.stopped:
            self._step()
            now = time.monotonic()
            progress.seconds, mark = progress.seconds + now - mark, now
            due = trainer.length.evaluation_due(trainer.step, settings.evaluations)
            if not due and not self.losses.full:  # reading losses synchronises the GPU
                continue
            self._report_losses()  # raises before a loss that is not finite is evaluated or saved
            total = self._total_within_time()
            if due:
                self._evaluate()
            # Rank 0 decides for all processes: they save together, and clocks differ.
            late = now - saved_at >= settings.checkpoint_seconds
            decision = self.world.broadcast(
                {"save": late, "signal": interruption(), "total": total}
            )
            name = decision["signal"]
            if decision["total"] is not None:
                trainer.length.move(trainer.step, decision["total"])
            if due or decision["save"] or name is not None:
                self._save()
                saved_at = time.monotonic()
            if name is not None:
                self.log.write("interrupted", step=trainer.step, signal=name)
                saved = f"saved at step {trainer.step:,}"
                raise Interrupted(name, f"{saved}; run the same command again to resume")
        self._record_film(end=True)

    def _step(self) -> None:
        """One update, and what there is to report about it."""
        trainer = self.trainer
        trainer.tune()
        if self.threads.count != self.threads_reported:
            self._report_threads()
        halvings, rate = trainer.halvings, trainer.rate
        loss, tokens = trainer.advance()
        if trainer.halvings > halvings and self.world.first:
            parts = 2**trainer.halvings
            self.display.message(
                f"out of memory at step {trainer.step:,}: repeated it; steps are now computed in "
                f"{parts} parts"
            )
            self.log.write("halved", step=trainer.step, parts=parts)
        self.progress.tokens += tokens
        place = trainer.step, trainer.epoch, trainer.epoch_step
        self.losses.add(LossEntry(*place, loss, rate, self.progress.tokens))
        self._record_film()

    def _record_film(self, *, end: bool = False) -> None:
        """Take a snapshot if one is due; its time does not count as that of a step."""
        seconds = self.film.record(self._full_model, end=end)
        if self.time_limit is not None:
            self.time_limit.paused += seconds

    def _evaluate(self) -> None:
        """Evaluate the averaged weights on the held-out set, and save the bundle if it is best."""
        trainer, progress = self.trainer, self.progress
        if trainer.step:
            trainer.average.add_snapshot()
        start = time.monotonic()
        with trainer.average.applied():
            model = self._full_model()
            if self.world.first:
                parts = self.trainer, progress, self.dataset, self.settings, self.context
                evaluate_and_select(model, *parts)
        progress.since_best = self.world.broadcast(progress.since_best)
        patience = self.settings.train.patience
        if patience and progress.since_best >= patience:
            progress.stopped = f"no improvement in {progress.since_best} evaluations"
        progress.evaluation_seconds = time.monotonic() - start
        if self.time_limit is not None:
            self.time_limit.paused += progress.evaluation_seconds

    def _full_model(self) -> Model:
        """The model with all weights gathered; every process must call it."""
        if self.world.size == 1 or self.settings.train.parallel != "fsdp":
            return self.model
        weights, model = gather_full(dict(self.model.named_parameters())), self._build_model()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(weights[name])
        return model

    def _report_losses(self) -> None:
        last = self.losses.read()
        if last is None or not self.world.first:
            return
        step, total = self.trainer.step, self.trainer.total
        seconds, minutes = self.progress.seconds, self.settings.train.minutes
        left = seconds / step * (total - step)
        if minutes is not None:
            left = TIME_SHARE * 60 * minutes - seconds
        speed = self.progress.tokens / seconds
        status = StepStatus(step, total, self.losses.average, last.rate, speed, left)
        self.display.step(status)
        for callback in self.context.callbacks:
            callback.on_step(status)

    def _report_threads(self) -> None:
        """Report the new number of threads, and save it: a resumed run starts with the same."""
        count, step = self.threads.count, self.trainer.step
        rates = {n: round(rate) for n, rate in self.threads.rates.items()}
        speeds = ", ".join(f"{rate:,} with {n}" for n, rate in rates.items())
        self.display.message(f"CPU threads: {count} from step {step + 1:,} on; tokens/s: {speeds}")
        self.log.write("threads", step=step, count=count, rates=rates)
        self.threads_reported = count
        self._report_losses()
        self._save()

    def _save(self) -> None:
        self.trainer.save(self.checkpoints, asdict(self.progress))
        if self.world.first:
            for callback in self.context.callbacks:
                callback.on_checkpoint(self.trainer.step, self.checkpoints)
        self.world.barrier()

    def _build_model(self) -> Model:
        torch.manual_seed(self.settings.train.seed)
        held_out = self.dataset.held_out
        sizes = len(held_out.source), len(held_out.target)
        model = build(self.settings.model, *sizes).to(self.world.device)
        if self.context.initial is not None:
            self.context.initial.copy_to(model)
        freeze_parameters(model, self.settings.train.freeze)
        return model

    def _build_trainer(self, model: Model, total: int) -> Trainer:
        train = self.settings.train
        assert train.learning_rate is not None
        return Trainer(
            model,
            self.batches,
            train,
            total,
            self.world,
            rate=train.learning_rate,
            template=self.dataset.held_out.template,
            threads=self.threads,
        )

    def _total_within_time(self) -> int | None:
        """A new last step if the measured speed asks for one."""
        if self.time_limit is None:
            return None
        trainer, progress = self.trainer, self.progress
        evaluations = max(1, self.settings.train.evaluations - len(progress.history))
        reserved = progress.evaluation_seconds * evaluations
        return self.time_limit.total(trainer.length, trainer.step, progress.seconds, reserved)

    def _extended_total(self, saved: dict[str, Any]) -> int:
        """The last step of a run whose length is increased after it was saved."""
        train, step = self.settings.train, saved["step"]
        seconds, minutes = saved["seconds"], train.minutes
        if minutes is None:
            total = self._choose_total()
        else:
            reserved = saved["evaluation_seconds"] * train.evaluations
            left = 60 * minutes * TIME_SHARE - seconds - reserved
            total = step + int(left * step / seconds) if step else self._choose_total()
        if total <= step:
            raise RegardError(
                f"this run has {step:,} steps already, in {seconds / 60:.1f} minutes; --extend "
                "needs more minutes, steps or epochs than that"
            )
        return total

    def _choose_total(self) -> int:
        """The number of steps: as requested, or as many as fit in the minutes at present speed."""
        train = self.settings.train
        if train.steps is not None:
            return train.steps
        if train.minutes is None:
            assert train.epochs is not None
            return max(1, round(train.epochs * self.batches.steps(0)))
        per_step = measure_step_seconds(lambda: self._build_trainer(self._build_model(), 1_000))
        start = time.perf_counter()
        if self.world.first:
            self.dataset.held_out.evaluate(self._build_model(), self.world.device)
        seconds = time.perf_counter() - start
        training = 60 * train.minutes * TIME_SHARE - seconds * train.evaluations
        total = max(1, int(training / per_step))
        total, self.progress.evaluation_seconds = self.world.broadcast((total, seconds))
        return total
