"""Learning-rate schedules, and the length of a run in steps or minutes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from regard.errors import choose

Schedule = Callable[[float, int, int], float]

TIME_SHARE = 0.97  # of the minutes; the rest is for reading the data and saving
MEASURE_SECONDS = 10.0  # of training between two measurements of the speed,
MEASURE_SHARE = 0.1  # or this share of the steps that were left, as a slow start must not end a run
SHORTEST_MEASUREMENT = 0.5  # seconds
FIXED_AFTER = 0.95  # of the run, after which its end no longer moves


def inverse_sqrt(step: float, warmup: int, total: int) -> float:
    """Falls as 1/√step after warm-up (Vaswani et al. 2017, §5.3), whatever the total."""
    return math.sqrt(max(warmup, 1) / max(step, 1))


def cosine(step: float, warmup: int, total: int) -> float:
    """Half a cosine from the peak to zero (Loshchilov & Hutter 2017)."""
    return (1 + math.cos(math.pi * _completed(step, warmup, total))) / 2


def linear(step: float, warmup: int, total: int) -> float:
    """A straight line from the peak to zero."""
    return 1 - _completed(step, warmup, total)


def stable(step: float, warmup: int, total: int) -> float:
    """Constant, then linear to zero over the last fifth (WSD, Hu et al. 2024)."""
    return min(1.0, 5 * (1 - _completed(step, warmup, total)))


def _completed(step: float, warmup: int, total: int) -> float:
    """The completed share of the run after warm-up."""
    return min(1.0, (step - warmup) / max(total - warmup, 1))


SCHEDULES: dict[str, Schedule] = {
    "inverse-sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "stable": stable,
}


def rate_factor(name: str, step: float, warmup: int, total: int) -> float:
    """The learning rate at a step (from 0) over its peak: linear warm-up, then the schedule."""
    if step < warmup:
        return min(1.0, (step + 1) / warmup)
    return choose(SCHEDULES, name, "schedule")(step, warmup, total)


@dataclass
class RunLength:
    """How many steps a run has, counted in the steps planned at its start.

    Schedules and evaluations count planned steps. If the end of the run moves, the remaining
    planned steps are spread over the remaining real ones, so that the learning rate falls to its
    end without a jump.
    """

    planned: int
    total: int  # the last step, as far as is known now
    moved_at: int = 0  # the step at which the total last changed,
    planned_before: float = 0.0  # and the planned steps completed then

    def completed(self, step: int) -> float:
        """Planned steps completed after this many real steps."""
        left = (self.planned - self.planned_before) / (self.total - self.moved_at)
        return self.planned_before + (step - self.moved_at) * left

    def move(self, step: int, total: int) -> None:
        """From this step on, the run ends after `total` steps."""
        self.planned_before = self.completed(step)
        self.moved_at, self.total = step, max(total, step + 1)

    def evaluation_due(self, step: int, times: int) -> bool:
        """Whether this step has one of `times` evenly spread evaluations, the last at the end."""
        if step == self.total:
            return True
        before, now = self.completed(step - 1), self.completed(step)
        return now * times // self.planned > before * times // self.planned


class TimeLimit:
    """Keeps a run within its minutes by measuring the time of a step now and then."""

    def __init__(self, minutes: float, step: int, elapsed: float) -> None:
        self.seconds = TIME_SHARE * 60 * minutes
        self.step, self.elapsed = step, elapsed
        self.paused = 0.0  # by evaluations and snapshots, since the last measurement

    def total(self, length: RunLength, step: int, elapsed: float, reserved: float) -> int | None:
        """The last step that fits if `reserved` seconds are kept for evaluations; None to keep the
        present one. `elapsed`: seconds of the run so far."""
        training = elapsed - self.elapsed - self.paused
        few = step - self.step < MEASURE_SHARE * (length.total - self.step)
        if training < (MEASURE_SECONDS if few else SHORTEST_MEASUREMENT):
            return None
        if length.completed(step) > FIXED_AFTER * length.planned:
            return None
        per_step = training / (step - self.step)
        self.step, self.elapsed, self.paused = step, elapsed, 0.0
        return step + max(1, int((self.seconds - elapsed - reserved) / per_step))
