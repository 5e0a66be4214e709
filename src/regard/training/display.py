"""Progress displays of training: a live view on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from regard.terminal import (
    TextStream,
    format_duration,
    format_number,
    redirect_to_null,
    sanitize,
    write_lines,
)
from regard.training.evaluation import SAMPLES, Sample
from regard.training.metric_facts import NO_INTERVALS, Intervals, format_metrics


class StepStatus(NamedTuple):
    """The progress of a run after a step."""

    step: int
    total: int
    loss: float
    rate: float
    tokens_per_second: float
    seconds_left: float | None = None

    def describe(self) -> list[str]:
        """Everything but the step number, as text."""
        speed = f"{self.tokens_per_second:,.0f} tokens/s"
        left = [] if self.seconds_left is None else [f"{format_duration(self.seconds_left)} left"]
        return [f"loss {self.loss:.4f}", f"rate {self.rate:.2e}", speed, *left]


class Display(ABC):
    """Shows the progress of training. As a context manager it always restores the terminal."""

    @abstractmethod
    def started(self, facts: Mapping[str, Any]) -> None:
        """Show what will be trained, one line per fact."""

    @abstractmethod
    def step(self, status: StepStatus) -> None:
        """Show a completed step; most steps are skipped."""

    @abstractmethod
    def evaluated(
        self,
        step: int,
        metrics: Mapping[str, Any],
        samples: Sequence[Sample] = (),
        intervals: Intervals = NO_INTERVALS,
    ) -> None:
        """Show metrics and samples of the held-out set."""

    @abstractmethod
    def message(self, text: str) -> None:
        """Show a line that must not be missed."""

    @abstractmethod
    def finished(self, facts: Mapping[str, Any]) -> None:
        """Show the result, one line per fact."""

    @abstractmethod
    def close(self) -> None:
        """Restore the terminal; may be called twice."""

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class LineDisplay(Display):
    """Lines without control characters: steps at most every `every` seconds, all evaluations."""

    def __init__(
        self, file: TextStream, *, every: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file, self._every, self._clock = file, every, clock
        self._next = float("-inf")

    def started(self, facts: Mapping[str, Any]) -> None:
        self._print(*(f"{name}: {format_number(value)}" for name, value in facts.items()))

    def step(self, status: StepStatus) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._every
        share = f"{100 * status.step / max(1, status.total):.0f} %"
        where = f"step {status.step:,} of {status.total:,} ({share})"
        self._print(", ".join([where, *status.describe()]))

    def evaluated(
        self,
        step: int,
        metrics: Mapping[str, Any],
        samples: Sequence[Sample] = (),
        intervals: Intervals = NO_INTERVALS,
    ) -> None:
        self._print(f"step {step:,}: {format_metrics(metrics, intervals)}")
        for source, prediction, reference in samples[:SAMPLES]:
            verdict = "correct" if prediction == reference else f"reference: {reference}"
            self._print(f"  {source} → {prediction} ({verdict})")

    def message(self, text: str) -> None:
        self._print(text)

    def finished(self, facts: Mapping[str, Any]) -> None:
        self.started(facts)

    def close(self) -> None:
        self._file.flush()

    def _print(self, *lines: str) -> None:
        write_lines(self._file, *lines)


class LiveDisplay(Display):
    """The latest step, metrics and samples, redrawn in place at most every `every` seconds."""

    def __init__(self, every: float, clock: Callable[[], float]) -> None:
        self._every, self._clock = every, clock
        self._next = float("-inf")
        self._status: StepStatus | None = None
        self._metrics = ""
        self._samples: Sequence[Sample] = ()

    @abstractmethod
    def redraw(self) -> None:
        """Show the current state."""

    def step(self, status: StepStatus) -> None:
        self._status = status
        now = self._clock()
        if now >= self._next:
            self._next = now + self._every
            self.redraw()

    def evaluated(
        self,
        step: int,
        metrics: Mapping[str, Any],
        samples: Sequence[Sample] = (),
        intervals: Intervals = NO_INTERVALS,
    ) -> None:
        self._metrics = f"step {step:,}: {format_metrics(metrics, intervals)}"
        self._samples = samples[:SAMPLES]
        self.redraw()


class TerminalDisplay(LiveDisplay):
    """A live view on a terminal, drawn by rich without a thread."""

    def __init__(
        self, console: Any, *, every: float = 0.5, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.live import Live

        super().__init__(every, clock)
        self._console = console
        self._screen = Live(console=console, auto_refresh=False, get_renderable=self.render)

    def started(self, facts: Mapping[str, Any]) -> None:
        for name, value in facts.items():
            self.message(f"{name}: {format_number(value)}")
        self._screen.start(refresh=True)

    def redraw(self) -> None:
        self._screen.refresh()

    def message(self, text: str) -> None:
        self._console.print(sanitize(text), markup=False, highlight=False)

    def finished(self, facts: Mapping[str, Any]) -> None:
        self.close()
        for name, value in facts.items():
            self.message(f"{name}: {format_number(value)}")

    def close(self) -> None:
        self._screen.stop()

    def render(self) -> Any:
        """Progress bar, numbers, the latest metrics and samples."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        parts: list[Any] = []
        if self._status is not None:
            step, total = self._status.step, self._status.total
            bar = Table.grid(padding=(0, 1), expand=True)
            bar.add_column(ratio=1)
            bar.add_column(no_wrap=True)
            progress = ProgressBar(total=max(1, total), completed=step)
            bar.add_row(progress, Text(f"{step:,}/{total:,}"))
            parts += [bar, Text(" · ".join(self._status.describe()))]
        if self._metrics:
            parts.append(Text(sanitize(self._metrics), style="bold"))
        if self._samples:
            table = Table(box=None, padding=(0, 2, 0, 0))
            for name in ("source", "prediction", "reference"):
                table.add_column(name, no_wrap=True, overflow="ellipsis", header_style="dim")
            for source, prediction, reference in self._samples:
                style = "green" if prediction == reference else "red"
                shown = Text(sanitize(prediction), style=style)
                table.add_row(Text(sanitize(source)), shown, Text(sanitize(reference)))
            parts.append(table)
        return Group(*parts)


class SafeDisplay(Display):
    """A display whose failures do not stop training: after the first it shows nothing more."""

    def __init__(self, inner: Display, file: TextStream) -> None:
        self.inner: Display | None = inner
        self._file = file

    def started(self, facts: Mapping[str, Any]) -> None:
        self._try(lambda display: display.started(facts))

    def step(self, status: StepStatus) -> None:
        self._try(lambda display: display.step(status))

    def evaluated(
        self,
        step: int,
        metrics: Mapping[str, Any],
        samples: Sequence[Sample] = (),
        intervals: Intervals = NO_INTERVALS,
    ) -> None:
        self._try(lambda display: display.evaluated(step, metrics, samples, intervals))

    def message(self, text: str) -> None:
        self._try(lambda display: display.message(text))

    def finished(self, facts: Mapping[str, Any]) -> None:
        self._try(lambda display: display.finished(facts))

    def close(self) -> None:
        self._try(lambda display: display.close())

    def _try(self, act: Callable[[Display], None]) -> None:
        if self.inner is None:
            return
        try:
            act(self.inner)
        except Exception as error:  # such as a closed pipe: a run of days must not end for it
            display, self.inner = self.inner, None
            if isinstance(error, BrokenPipeError):
                redirect_to_null(self._file)
            try:
                display.close()
            except Exception:  # it has failed before
                return


def open_display(file: TextStream | None = None) -> Display:
    """The display that suits `file` (default: standard error)."""
    if file is None:
        from regard.training.notebook_display import NotebookDisplay, in_notebook

        if in_notebook():
            return SafeDisplay(NotebookDisplay(), sys.stderr)
    file = sys.stderr if file is None else file
    if file.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console

        stream: Any = file  # rich's annotation demands more than it uses
        return SafeDisplay(TerminalDisplay(Console(file=stream)), file)
    return SafeDisplay(LineDisplay(file), file)
