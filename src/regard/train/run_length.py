"""Course: how far a run is and where it ends. A run of so many minutes moves its end as its speed shows."""

from __future__ import annotations

from dataclasses import dataclass

LOOK_AGAIN = 10.0  # seconds of learning between two looks at the speed
SETTLED = 0.95  # of the run: after that its end stays where it is
ROOM = 0.97  # of the minutes: the rest is for reading the data and saving


@dataclass
class Course:
    """Schedules and evaluations count in the steps that were planned at first. Should the end move, the rest of them is
    spread over the steps that are left, so that the rate falls to its end without a jump."""

    planned: int
    total: int  # the step after which the run ends, as it is known now
    since: int = 0  # the step at which that was last said,
    gone: float = 0.0  # and how many planned steps were over then

    def at(self, step: int) -> float:
        """How many of the planned steps are over after so many real ones."""
        return self.gone + (step - self.since) * ((self.planned - self.gone) / (self.total - self.since))

    def move(self, step: int, total: int) -> None:
        """From this step on the run ends after `total` steps."""
        self.gone, self.since, self.total = self.at(step), step, max(total, step + 1)

    def due(self, step: int, times: int) -> bool:
        """Whether one of so many evaluations, spread evenly and the last at the end, falls on this step."""
        return step == self.total or self.at(step) * times // self.planned > self.at(step - 1) * times // self.planned


class Timer:
    """Keeps a run within its minutes: now and then it measures how long a step takes, and says where to end."""

    def __init__(self, minutes: float, step: int, spent: float) -> None:
        self.seconds = ROOM * 60 * minutes
        self.step, self.spent = step, spent
        self.paused = 0.0  # for evaluations, since the last look

    def total(self, course: Course, step: int, spent: float, reserved: float) -> int | None:
        """The last step that the minutes allow, with `reserved` seconds kept for evaluations; None where the end should
        stay. `spent`: all seconds of the run so far."""
        learning = spent - self.spent - self.paused
        if learning < LOOK_AGAIN or course.at(step) > SETTLED * course.planned:
            return None
        each = learning / (step - self.step)
        self.step, self.spent, self.paused = step, spent, 0.0
        return step + max(1, int((self.seconds - spent - reserved) / each))
