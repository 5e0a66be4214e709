"""The loop: batches in, updates out; saved so that going on after a kill is the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import TrainSettings
from regard.device import resolve_precision
from regard.errors import RegardError
from regard.kernels import fusible, unfused
from regard.kernels.weight_cast import Halves
from regard.models import Model
from regard.models.transformer import Transformer
from regard.onednn import bypass_onednn
from regard.ragged import Ragged
from regard.text import Batch, Batches, TrainingBatch, split_batch
from regard.threads import FixedThreads, ThreadTuner
from regard.train import checkpoint
from regard.train.average import Average
from regard.train.distributed import World, like, whole
from regard.train.graph_step import Captured
from regard.train.objective import Objective
from regard.train.optimizers import optimizers, set_rate
from regard.train.prefetch import Ahead, Prepared
from regard.train.run_length import Course
from regard.train.schedule import share

SAMPLE_HALVINGS = 3  # of a batch, for the first look at a number of threads


class Trainer:
    """One run. Each step is a pure function of the settings, the step's number and the weights before it: the batch and
    the dropout come from (seed, step), so nothing random needs to be remembered."""

    def __init__(
        self,
        model: Model,
        batches: Batches,
        settings: TrainSettings,
        total: int,
        world: World,
        *,
        rate: float,
        threads: ThreadTuner | FixedThreads | None = None,
    ) -> None:
        self.model, self.batches, self.settings, self.world = model, batches, settings, world
        self.threads = threads or FixedThreads()
        self.course = Course(total, total)
        self.half = resolve_precision(settings.precision, world.device)[0] == "bfloat16"
        # By the reference everything is plain, not attention alone: the definition that kernels are held to.
        self.plain = isinstance(model, Transformer) and model.settings.attention_backend == "reference"
        self.peak, self.warmup = rate, round(settings.warmup * total)
        self.objective = world.wrap(
            Objective(model, label_smoothing=settings.label_smoothing, rdrop=settings.rdrop or 0.0), settings.parallel
        )
        self.weights = list(model.parameters())  # found once: to walk through a model takes as long as a layer of it
        # On a GPU the rate lies there too, where a recorded step can read it.
        pace = torch.zeros((), device=world.device) if world.device.type == "cuda" else rate
        self.optimizers = optimizers(model, settings.optimizer, rate=pace, decay=settings.weight_decay)
        window = settings.average_count * total // 200
        self.average = Average(model, settings.weight_average, count=settings.average_count, window=window)
        self.step, self.epoch, self.at = 0, 0, 0
        self.halvings = settings.gradient_accumulation.bit_length() - 1
        self.halves = Halves()
        self.captured = _captured(self)
        self.ahead = Ahead(batches, self.captured.prepared if self.captured else None)
        self.facts: dict[str, Any] = {}
        self.moved = False  # whether this step has begun to change weights

    @property
    def total(self) -> int:
        """The step after which the run ends."""
        return self.course.total

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        course = self.course
        return self.peak * share(self.settings.schedule, course.at(self.step), self.warmup, course.planned)

    def advance(self) -> tuple[Tensor, int]:
        """One update: its loss and the tokens it read."""
        with self._products(), self.threads.use():
            return self._advance()

    def tune(self) -> None:
        """Choose the number of CPU threads again if that is due.

        The next step's gradients are timed with different counts and discarded. They depend on
        nothing but the step and the weights, so timing alters no weight; the count itself changes
        the order of additions, and so the last bits of what follows.
        """
        if self.threads.trial is None:
            return
        batch = self.ahead.take(self.epoch, self.at, last=True)[2]
        sample = batch
        for _ in range(SAMPLE_HALVINGS):
            sample = split_batch(sample)[0] if len(sample) > 1 else sample
        self.model.train()
        with self._products():
            while self.threads.trial is not None:
                part = sample if self.threads.trial.sample else batch
                with self.threads.probe(_tokens(part)):
                    self._gradients(part)

    @contextmanager
    def _products(self) -> Iterator[None]:
        """How matrix products are computed in this run."""
        with nullcontext() if self.half else bypass_onednn(), unfused() if self.plain else nullcontext():
            yield

    def _advance(self) -> tuple[Tensor, int]:
        self.epoch, self.at, batch, prepared = self.ahead.take(self.epoch, self.at, last=self.step + 1 >= self.total)
        if not self.model.training:  # asked first, for to say it to every part takes longer than a small product
            self.model.train()
        set_rate(self.optimizers, self.rate)
        loss = self._by_recording(batch, prepared)
        if loss is None:
            on_device = batch.to(self.world.device)
            loss = self._update(lambda: self.world.summed(self._timed_gradients(on_device)))
        self.step, self.at = self.step + 1, self.at + 1
        self.average.stepped(self.step)
        return loss, batch.total_tokens

    def _by_recording(self, batch: Batch, prepared: Prepared | None) -> Tensor | None:
        """The loss of an update that was, or will be, recorded; None where this step cannot be."""
        if self.captured is None or prepared is None or self.halvings:
            return None
        self._seed()
        self.moved = False
        try:
            return self.captured(*prepared, 1 / (batch.step_target_tokens + batch.step_pairs))
        except torch.OutOfMemoryError:
            if self.moved:  # some weights, perhaps; they would be moved twice
                raise RegardError(
                    f"memory ran out while weights were updated, at step {self.step + 1:,}; the last checkpoint is "
                    "kept: lower train.batch_tokens, or the model's size, and use another --out"
                ) from None
            self.captured, self.ahead.prepare = None, None  # in parts, then
            return None

    def _seed(self) -> None:
        torch.manual_seed(hash((self.settings.seed, self.step, self.world.rank)) & 0x7FFF_FFFF_FFFF_FFFF)

    def _learn(self, lesson: TrainingBatch) -> Tensor:
        """One update from a lesson, all of it on the device."""

        def gradients() -> Tensor:
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            return self._part(lesson)

        return self._update(gradients)

    def _update(self, gradients: Callable[[], Tensor]) -> Tensor:
        """Find the gradients, shorten them, follow them; gives the loss."""
        loss = gradients()
        norm = whole(nn.utils.clip_grad_norm_(self.weights, self.settings.clip_norm))
        on_gpu = self.world.device.type == "cuda"
        self.moved = not (on_gpu and torch.cuda.is_current_stream_capturing())  # what is recorded does not happen yet
        for optimizer in self.optimizers:
            optimizer.step()
        return torch.where(norm.isfinite() | ~loss.isfinite(), loss, norm)  # else it would show at the next step only

    def _timed_gradients(self, batch: Batch) -> Tensor:
        with self.threads.watch(_tokens(batch)):
            return self._gradients(batch)

    def _gradients(self, batch: Batch) -> Tensor:
        """The gradients of a batch, in as many parts as memory needs."""
        while True:
            try:
                self._seed()
                for optimizer in self.optimizers:
                    optimizer.zero_grad()
                return sum((self._part(part) for part in self._parts(batch)), torch.zeros((), device=self.world.device))
            except torch.OutOfMemoryError:
                if self.world.size > 1:  # the others are already waiting for this one's gradients
                    raise RegardError(
                        f"memory ran out in process {self.world.rank} of {self.world.size} at step {self.step + 1:,}; "
                        f"use more parts (train.gradient_accumulation = {2 ** (self.halvings + 1)}) or a smaller train.batch_tokens"
                    ) from None
                if 2**self.halvings >= len(batch):
                    raise RegardError(
                        f"one pair of {len(batch.source.values) + len(batch.target.values):,} tokens does not fit in "
                        "memory; lower text.max_tokens or the model's size"
                    ) from None
                self.halvings += 1
                torch.cuda.empty_cache()

    def _parts(self, batch: Batch) -> list[Batch]:
        """The batch cut in half so many times; among several processes equally often in each, for all must meet."""
        parts = [batch]
        for _ in range(self.halvings):
            parts = [half for part in parts for half in (split_batch(part) if len(part) > 1 else (part,))]
        missing = 2**self.halvings - len(parts) if self.world.size > 1 else 0
        return parts + [_nothing(batch)] * missing

    def _part(self, part: Batch | TrainingBatch) -> Tensor:
        whole_here = self.world.size == 1 or self.settings.parallel != "fsdp"  # a shard is gathered inside only
        with self._precision(), self.halves.fresh() if whole_here else nullcontext():
            loss = self.objective(part)
        (loss * self.world.size).backward()  # the exchange takes the mean over processes; this makes it the sum
        return loss.detach()

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.world.device.type, torch.bfloat16) if self.half else nullcontext()

    def save(self, folder: Path) -> None:
        """All that the rest of the run depends on, written by the first process; all must call it."""
        state = {
            "model": whole(dict(self.model.named_parameters())),
            "optimizers": [whole(optimizer.state_dict()["state"]) for optimizer in self.optimizers],
            "average": whole(self.average.state()),
        }
        if not self.world.first:
            return
        facts = {"step": self.step, "epoch": self.epoch, "at": self.at, "halvings": self.halvings, **self.facts}
        facts["course"], facts["threads"] = asdict(self.course), self.threads.count
        checkpoint.write(folder, f"step-{self.step}", state, facts)

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Go on where `save` left off."""
        weights = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, weight in saved.state["model"].items():
                weights[name].copy_(like(weight, weights[name]))
        for optimizer, state in zip(self.optimizers, saved.state["optimizers"], strict=True):
            full = optimizer.state_dict()
            owners = [weight for group in optimizer.param_groups for weight in group["params"]]
            full["state"] = {
                int(key): {name: like(value, owners[int(key)]) for name, value in kept.items()}
                for key, kept in state.items()
            }
            rates = [group["lr"] for group in optimizer.param_groups]
            optimizer.load_state_dict(full)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate  # loading copied it
        self.average.restore(saved.state["average"])
        facts = dict(saved.facts)
        self.step, self.epoch, self.at = (facts.pop(name) for name in ("step", "epoch", "at"))
        self.halvings, self.course = facts.pop("halvings"), Course(**facts.pop("course"))
        if isinstance(self.threads, ThreadTuner):
            self.threads.restore(facts["threads"])
        del facts["threads"]
        self.facts = facts


def _captured(trainer: Trainer) -> Captured | None:
    """What learns by recordings, where that can be: one GPU, a Transformer, a step in one part."""
    world, settings = trainer.world, trainer.settings
    if world.device.type != "cuda" or world.size > 1 or trainer.halvings or not isinstance(trainer.model, Transformer):
        return None
    if not fusible(trainer.weights[0]) or trainer.model.settings.attention_backend not in ("auto", "triton"):
        return None
    batch_tokens, device = trainer.batches.batch_tokens, world.device
    return Captured(trainer._learn, batch_tokens=batch_tokens, device=device, replay=settings.cuda_graphs)


def _tokens(batch: Batch) -> int:
    return len(batch.source.values) + len(batch.target.values)


def _nothing(batch: Batch) -> Batch:
    """No pairs, of the same step."""
    none = Ragged(batch.source.values[:0], batch.source.offsets[:1])
    return replace(batch, source=none, target=none, indices=batch.indices[:0])


def seconds_a_step(make: Callable[[], Trainer], steps: int = 24) -> float:
    """How long an update takes, measured on a throw-away trainer over the first batches; its first steps warm up."""
    trainer = make()
    trainer.tune()
    for _ in range(4):
        loss, _ = trainer.advance()
    if trainer.captured:  # a shape is recorded when it comes again
        for _ in range(2):
            trainer.epoch, trainer.at = 0, 0
            for _ in range(steps):
                loss, _ = trainer.advance()
        trainer.epoch, trainer.at = 0, 0
    float(loss)  # a GPU has finished only when it is asked for a number
    start = time.perf_counter()
    for _ in range(steps):
        loss, _ = trainer.advance()
    float(loss)
    return (time.perf_counter() - start) / steps
