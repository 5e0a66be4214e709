"""Losses: those of the latest steps, looked at together, for to ask a GPU is to wait for it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.text import Batches
from regard.train.distributed import World
from regard.train.journal import Journal

TOGETHER = {"cuda": 16}  # steps; elsewhere each is looked at when it is done
TOLD = 20  # steps between two that the journal tells of


class Look(NamedTuple):
    """A step as it is looked at later: where it stood, its loss, its rate, the tokens so far."""

    step: int
    epoch: int
    at: int
    loss: Tensor
    rate: float
    tokens: int


class Losses:
    """Losses that nobody has looked at yet, and what those before were like (`smooth`)."""

    def __init__(self, batches: Batches, journal: Journal, here: World) -> None:
        self.batches, self.journal, self.here = batches, journal, here
        self.smooth = math.nan
        self.waiting: list[Look] = []

    def add(self, look: Look) -> None:
        """One more step is done, or will be when the GPU comes to it."""
        self.waiting.append(look)

    @property
    def enough(self) -> bool:
        """Whether it is time to look."""
        return len(self.waiting) >= TOGETHER.get(self.here.device.type, 1)

    def look(self) -> Look | None:
        """Ask for all that wait; the first that went wrong ends the run. Gives the last of them."""
        looks, self.waiting = self.waiting, []
        if not looks:
            return None
        for look, value in zip(looks, torch.stack([look.loss for look in looks]).tolist(), strict=True):
            if not math.isfinite(value):
                self._stop(look, value)
            self.smooth = value if math.isnan(self.smooth) else 0.98 * self.smooth + 0.02 * value
            if self.here.first and look.step % TOLD == 0:
                self.journal.write("step", step=look.step, loss=value, rate=look.rate, tokens=look.tokens)
        return looks[-1]

    def _stop(self, look: Look, value: float) -> None:
        batch = self.batches.plan(look.epoch).batch(look.at - 1)[:8].tolist()
        self.journal.write("not finite", step=look.step, loss=str(value), pairs=batch)
        raise RegardError(
            f"the loss became {value} at step {look.step:,} (epoch {look.epoch}, pairs {batch} …); the last "
            "good checkpoint is kept: lower train.learning_rate, or train.clip_norm, and use another --out"
        )
