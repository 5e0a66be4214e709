"""The loss log: losses of recent steps, read together because each read synchronises the GPU."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.text import Batches
from regard.training.distributed import World
from regard.training.run_log import RunLog

READ_EVERY = {"cuda": 16}  # steps; on other devices each loss is read at once
LOG_EVERY = 20  # steps


class LossEntry(NamedTuple):
    """A completed step whose loss may still be on the GPU."""

    step: int
    epoch: int
    epoch_step: int
    loss: Tensor
    rate: float
    tokens: int


class LossLog:
    """Losses not read yet, and the moving average of those before (`average`)."""

    def __init__(self, batches: Batches, log: RunLog, world: World) -> None:
        self.batches, self.log, self.world = batches, log, world
        self.average = math.nan
        self.pending: list[LossEntry] = []

    def add(self, entry: LossEntry) -> None:
        """Add a step."""
        self.pending.append(entry)

    @property
    def full(self) -> bool:
        """Whether it is time to read the losses."""
        return len(self.pending) >= READ_EVERY.get(self.world.device.type, 1)

    def read(self) -> LossEntry | None:
        """Read all pending losses and return the last; raises at one that is not finite."""
        entries, self.pending = self.pending, []
        if not entries:
            return None
        losses = torch.stack([entry.loss for entry in entries]).tolist()
        for entry, loss in zip(entries, losses, strict=True):
            if not math.isfinite(loss):
                self._stop(entry, loss)
            first = math.isnan(self.average)
            self.average = loss if first else 0.98 * self.average + 0.02 * loss
            if self.world.first and entry.step % LOG_EVERY == 0:
                fields = {"loss": loss, "rate": entry.rate, "tokens": entry.tokens}
                self.log.write("step", step=entry.step, **fields)
        return entries[-1]

    def _stop(self, entry: LossEntry, loss: float) -> None:
        pairs = self.batches.plan(entry.epoch).batch(entry.epoch_step - 1)[:8].tolist()
        self.log.write("not finite", step=entry.step, loss=str(loss), pairs=pairs)
        raise RegardError(
            f"the loss became {loss} at step {entry.step:,} (epoch {entry.epoch}, pairs {pairs} …);"
            " the last good checkpoint is kept: lower train.learning_rate or train.clip_norm and "
            "use another --out"
        )
