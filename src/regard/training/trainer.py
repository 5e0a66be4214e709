"""The trainer: one update per step, and its exact state in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import TrainSettings
from regard.device import bypass_onednn, resolve_precision
from regard.errors import RegardError
from regard.kernels import can_fuse, disable_fusion
from regard.kernels.weight_cast import WeightCast
from regard.models import Model
from regard.ragged import Ragged
from regard.text import Batch, Batches, TrainingBatch, split_batch
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.threads import FixedThreads, ThreadTuner
from regard.training import checkpoint
from regard.training.distributed import World, gather_full, shard_like
from regard.training.graph_step import GraphStep, PackedBatch, Prefetcher
from regard.training.objective import Objective
from regard.training.optimizers import (
    build_optimizers,
    optimizer_states,
    restore_optimizers,
    set_rate,
)
from regard.training.random_seed import seed_generators
from regard.training.schedule import RunLength, rate_factor
from regard.training.weight_average import WeightAverage

SAMPLE_HALVINGS = 3  # of a batch, for the first measurement of a thread count


class Trainer:
    """Training of one model. Each step is a pure function of the settings, the step number and the
    weights before it: batch and dropout come from (seed, step), so no random state is saved."""

    def __init__(
        self,
        model: Model,
        batches: Batches,
        settings: TrainSettings,
        total: int,
        world: World,
        *,
        rate: float,
        template: Template = DEFAULT_TEMPLATE,
        threads: ThreadTuner | FixedThreads | None = None,
    ) -> None:
        self.model, self.batches = model, batches
        self.settings, self.world, self.template = settings, world, template
        self.threads = threads or FixedThreads()
        self.length = RunLength(total, total)
        self.bfloat16 = resolve_precision(settings.precision, world.device)[0] == "bfloat16"
        # The reference backend turns off all fused kernels: it is the definition they must match.
        self.disable_fusion = model.attention_backend == "reference"
        self.peak_rate, self.warmup = rate, round(settings.warmup * total)
        losses = {"label_smoothing": settings.label_smoothing, "rdrop": settings.rdrop or 0.0}
        objective = Objective(model, **losses, template=template)
        self.objective = world.parallelize(objective, settings.parallel)
        self.weights = list(model.parameters())  # once: collecting them takes as long as a layer
        # On a GPU the rate is a tensor, which captured steps read.
        on_gpu = world.device.type == "cuda"
        current = torch.zeros((), device=world.device) if on_gpu else rate
        self.optimizers = build_optimizers(
            model, settings.optimizer, rate=current, decay=settings.weight_decay
        )
        count = settings.average_count
        self.average = WeightAverage(
            model, settings.weight_average, count=count, window=count * total // 200
        )
        self.step, self.epoch, self.epoch_step = 0, 0, 0
        self.halvings = settings.gradient_accumulation.bit_length() - 1
        self.weight_casts = WeightCast()
        self.graph_step = self._build_graph_step()
        self.prefetcher = Prefetcher(batches, self.graph_step.pack if self.graph_step else None)
        self.updating = False  # whether this step has begun to change weights

    @property
    def total(self) -> int:
        """The last step of the run."""
        return self.length.total

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        completed = self.length.completed(self.step)
        planned, schedule = self.length.planned, self.settings.schedule
        return self.peak_rate * rate_factor(schedule, completed, self.warmup, planned)

    def advance(self) -> tuple[Tensor, int]:
        """Run one update; returns its loss and the tokens it read."""
        with self._kernels(), self.threads.use():
            return self._advance()

    def tune(self) -> None:
        """Choose the number of CPU threads again if that is due.

        The next step's gradients are timed with different counts and discarded. They depend on
        nothing but the step and the weights, so timing alters no weight; the count itself changes
        the order of additions, and so the last bits of what follows.
        """
        if self.threads.trial is None:
            return
        batch = self.prefetcher.take(self.epoch, self.epoch_step, last=True).batch
        sample = batch
        for _ in range(SAMPLE_HALVINGS):
            sample = split_batch(sample)[0] if len(sample) > 1 else sample
        self.model.train()
        with self._kernels():
            while self.threads.trial is not None:
                part = sample if self.threads.trial.sample else batch
                with self.threads.probe(_tokens(part)):
                    self._compute_gradients(part)

    @contextmanager
    def _kernels(self) -> Iterator[None]:
        """The kernels of this run: oneDNN only for bfloat16, fused ones unless turned off."""
        products = nullcontext() if self.bfloat16 else bypass_onednn()
        with products, disable_fusion() if self.disable_fusion else nullcontext():
            yield

    def _advance(self) -> tuple[Tensor, int]:
        last = self.step + 1 >= self.total
        taken = self.prefetcher.take(self.epoch, self.epoch_step, last=last)
        self.epoch, self.epoch_step = taken.epoch, taken.epoch_step
        if not self.model.training:  # train() visits every module: slow for a small model
            self.model.train()
        set_rate(self.optimizers, self.rate)
        loss = self._graph_update(taken.batch, taken.packed)
        if loss is None:
            batch = taken.batch.to(self.world.device)
            loss = self._update(lambda: self.world.all_reduce(self._timed_gradients(batch)))
        self.step, self.epoch_step = self.step + 1, self.epoch_step + 1
        self.average.update(self.step)
        return loss, taken.batch.total_tokens

    def _graph_update(self, batch: Batch, packed: PackedBatch | None) -> Tensor | None:
        """The loss of an update by a CUDA graph; None if this step cannot use one."""
        if self.graph_step is None or packed is None or self.halvings:
            return None
        self._seed()
        self.updating = False
        try:
            return self.graph_step(*packed, 1 / (batch.step_target_tokens + batch.step_pairs))
        except torch.OutOfMemoryError:
            if self.updating:  # repeating the step could update some weights twice
                raise RegardError(
                    f"out of memory while weights were updated, at step {self.step + 1:,}; the "
                    "last checkpoint is kept: lower train.batch_tokens or the model size and use "
                    "another --out"
                ) from None
            self.graph_step, self.prefetcher.pack = None, None  # eager, in parts
            return None

    def _seed(self) -> None:
        key = hash((self.settings.seed, self.step, self.world.rank))
        seed_generators(key & 0x7FFF_FFFF_FFFF_FFFF, self.world.device)

    def _update_from(self, batch: TrainingBatch) -> Tensor:
        """One update from a batch that is on the device."""

        def gradients() -> Tensor:
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            return self._backward(batch)

        return self._update(gradients)

    def _update(self, gradients: Callable[[], Tensor]) -> Tensor:
        """Compute gradients, clip them, update the weights; returns the loss."""
        loss = gradients()
        norm = gather_full(nn.utils.clip_grad_norm_(self.weights, self.settings.clip_norm))
        on_gpu = self.world.device.type == "cuda"
        # While a graph is captured nothing runs, so no weight changes.
        self.updating = not (on_gpu and torch.cuda.is_current_stream_capturing())
        for optimizer in self.optimizers:
            optimizer.step()
        # A gradient that is not finite would show in the loss of the next step only.
        return torch.where(norm.isfinite() | ~loss.isfinite(), loss, norm)

    def _timed_gradients(self, batch: Batch) -> Tensor:
        with self.threads.watch(_tokens(batch)):
            return self._compute_gradients(batch)

    def _compute_gradients(self, batch: Batch) -> Tensor:
        """Accumulate the gradients of a batch in as many parts as fit in memory."""
        while True:
            try:
                self._seed()
                for optimizer in self.optimizers:
                    optimizer.zero_grad()
                zero = torch.zeros((), device=self.world.device)
                return sum((self._backward(part) for part in self._parts(batch)), zero)
            except torch.OutOfMemoryError:
                self._halve(batch)

    def _halve(self, batch: Batch) -> None:
        """After running out of memory: twice as many parts, or an error if that cannot help."""
        if self.world.size > 1:  # the others already wait for this process's gradients
            raise RegardError(
                f"out of memory in process {self.world.rank} of {self.world.size} at step "
                f"{self.step + 1:,}; raise train.gradient_accumulation to "
                f"{2 ** (self.halvings + 1)} or lower train.batch_tokens"
            ) from None
        if 2**self.halvings >= len(batch):
            raise RegardError(
                f"one pair of {_tokens(batch):,} tokens does not fit in memory; lower "
                "text.max_tokens or the model size"
            ) from None
        self.halvings += 1
        torch.cuda.empty_cache()

    def _parts(self, batch: Batch) -> list[Batch]:
        """The batch halved `halvings` times; every process has the same number of parts, because
        each part exchanges gradients."""
        parts = [batch]
        for _ in range(self.halvings):
            parts = [h for part in parts for h in (split_batch(part) if len(part) > 1 else (part,))]
        missing = 2**self.halvings - len(parts) if self.world.size > 1 else 0
        return parts + [_empty(batch)] * missing

    def _backward(self, part: Batch | TrainingBatch) -> Tensor:
        sharded = self.world.size > 1 and self.settings.parallel == "fsdp"
        # FSDP gathers weights inside the forward pass only, so they cannot be cast before it.
        with self._precision(), nullcontext() if sharded else self.weight_casts.active():
            loss = self.objective(part)
        (loss * self.world.size).backward()  # DDP and FSDP average gradients; this makes it a sum
        return loss.detach()

    def _precision(self) -> AbstractContextManager[Any]:
        if not self.bfloat16:
            return nullcontext()
        return torch.autocast(self.world.device.type, torch.bfloat16)

    def save(self, folder: Path, progress: dict[str, Any]) -> None:
        """Write a checkpoint from rank 0; every process must call it."""
        state = {
            "model": gather_full(dict(self.model.named_parameters())),
            "optimizers": optimizer_states(self.optimizers),
            "average": gather_full(self.average.state()),
        }
        if not self.world.first:
            return
        position = {"step": self.step, "epoch": self.epoch, "epoch_step": self.epoch_step}
        own = {"halvings": self.halvings, "length": asdict(self.length)}
        own["threads"] = self.threads.count
        checkpoint.write(folder, f"step-{self.step}", state, {**position, **own, **progress})

    def restore(self, saved: checkpoint.Checkpoint) -> dict[str, Any]:
        """Continue from a checkpoint; returns the progress that was saved with it."""
        weights = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, weight in saved.state["model"].items():
                weights[name].copy_(shard_like(weight, weights[name]))
        restore_optimizers(self.optimizers, saved.state["optimizers"])
        self.average.restore(saved.state["average"])
        progress = dict(saved.progress)
        self.step, self.epoch = progress.pop("step"), progress.pop("epoch")
        self.epoch_step, self.halvings = progress.pop("epoch_step"), progress.pop("halvings")
        self.length, threads = RunLength(**progress.pop("length")), progress.pop("threads")
        if isinstance(self.threads, ThreadTuner):
            self.threads.restore(threads)
        return progress

    def _build_graph_step(self) -> GraphStep | None:
        """CUDA-graph steps if possible: one GPU, steps in one part, a model with static shapes."""
        device, backend = self.world.device, self.model.attention_backend
        if device.type != "cuda" or self.world.size > 1 or self.halvings:
            return None
        if not self.model.static_shapes or backend not in ("auto", "triton"):
            return None
        if not can_fuse(self.weights[0]):
            return None
        return GraphStep(
            self._update_from,
            device=device,
            batch_tokens=self.batches.batch_tokens,
            replay=self.settings.cuda_graphs,
            template=self.template,
        )


def _tokens(batch: Batch) -> int:
    return len(batch.source.values) + len(batch.target.values)


def _empty(batch: Batch) -> Batch:
    """A batch of the same step without pairs."""
    none = Ragged(batch.source.values[:0], batch.source.offsets[:1])
    return replace(batch, source=none, target=none, indices=batch.indices[:0])
