"""Schedules: the learning rate over a run, as a share of its peak."""

from __future__ import annotations

import math
from collections.abc import Callable

from regard.errors import choose

Schedule = Callable[[float, int, int], float]


def inverse_sqrt(step: float, warmup: int, total: int) -> float:
    """Falls as 1/√step after the warm-up (Vaswani et al. 2017, §5.3); does not know the end."""
    return math.sqrt(max(warmup, 1) / max(step, 1))


def cosine(step: float, warmup: int, total: int) -> float:
    """Half a cosine from the peak to nothing (Loshchilov & Hutter 2017)."""
    return (1 + math.cos(math.pi * _gone(step, warmup, total))) / 2


def linear(step: float, warmup: int, total: int) -> float:
    """A straight line from the peak to nothing."""
    return 1 - _gone(step, warmup, total)


def stable(step: float, warmup: int, total: int) -> float:
    """Level, then down to nothing over the last fifth (warm-up–stable–decay, Hu et al. 2024)."""
    return min(1.0, 5 * (1 - _gone(step, warmup, total)))


def _gone(step: float, warmup: int, total: int) -> float:
    """The share of the run after the warm-up that is over."""
    return min(1.0, (step - warmup) / max(total - warmup, 1))


SCHEDULES: dict[str, Schedule] = {
    "inverse-sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "stable": stable,
}


def share(name: str, step: float, warmup: int, total: int) -> float:
    """The share of the peak rate at a step (from 0): up in a straight line first, then by the schedule."""
    if step < warmup:
        return min(1.0, (step + 1) / warmup)
    return choose(SCHEDULES, name, "schedule")(step, warmup, total)
