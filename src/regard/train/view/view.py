"""View: what training tells people, however it is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from regard.terminal import format_duration, format_number

Sample = tuple[str, str, str]  # source, predicted, true
SHOWN = 3  # samples


class Pace(NamedTuple):
    """Where a run stands after a step, and how fast it goes."""

    step: int
    total: int
    loss: float
    rate: float
    tokens_per_second: float
    seconds_left: float | None = None

    def words(self) -> list[str]:
        """What is told of it beside the number of the step."""
        left = [] if self.seconds_left is None else [f"{format_duration(self.seconds_left)} left"]
        return [f"loss {self.loss:.4f}", f"rate {self.rate:.2e}", f"{self.tokens_per_second:,.0f} tokens/s", *left]


class View(ABC):
    """What training tells people. Used in a `with` block, so that the terminal is whole again whatever happens."""

    @abstractmethod
    def started(self, facts: Mapping[str, Any]) -> None:
        """What is about to be trained, a line for each fact."""

    @abstractmethod
    def step(self, pace: Pace) -> None:
        """One more step is done; shown only as often as eyes can follow."""

    @abstractmethod
    def evaluated(self, step: int, metrics: Mapping[str, Any], samples: Sequence[Sample] = ()) -> None:
        """Metrics of the held-out part and some of its answers."""

    @abstractmethod
    def said(self, text: str) -> None:
        """A line that should not be missed."""

    @abstractmethod
    def finished(self, facts: Mapping[str, Any]) -> None:
        """What came of it."""

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal as it was; may be called twice."""

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def scores(metrics: Mapping[str, Any]) -> str:
    """The numbers among metrics; signatures are for the journal."""
    named = ((name, value) for name, value in metrics.items() if isinstance(value, int | float))
    return ", ".join(f"{name} {format_number(value)}" for name, value in named)
