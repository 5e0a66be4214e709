"""What a person sees while a model trains: a live picture on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

Sample = tuple[str, str, str]  # source, predicted, true
SHOWN = 3  # samples
JOINERS = "\u200c\u200d"  # invisible, yet part of how words are written


@runtime_checkable
class Stream(Protocol):
    """Where text can be shown: standard output or error, or a file."""

    def write(self, text: str, /) -> Any: ...
    def flush(self) -> Any: ...
    def isatty(self) -> bool: ...
    def fileno(self) -> int: ...


class View(ABC):
    """What training tells people. Used in a `with` block, so that the terminal is whole again whatever happens."""

    @abstractmethod
    def started(self, facts: Mapping[str, Any]) -> None:
        """What is about to be trained, a line for each fact."""

    @abstractmethod
    def step(
        self,
        number: int,
        total: int,
        loss: float,
        rate: float,
        tokens_per_second: float,
        seconds_left: float | None = None,
    ) -> None:
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


class Plain(View):
    """Lines without control characters: steps at most every `every` seconds, and every evaluation."""

    def __init__(self, file: Stream, *, every: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._every, self._clock = file, every, clock
        self._next = float("-inf")

    def started(self, facts: Mapping[str, Any]) -> None:
        self._print(*(f"{name}: {figure(value)}" for name, value in facts.items()))

    def step(
        self,
        number: int,
        total: int,
        loss: float,
        rate: float,
        tokens_per_second: float,
        seconds_left: float | None = None,
    ) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._every
        left = "" if seconds_left is None else f", {duration(seconds_left)} left"
        share = f"{100 * number / max(1, total):.0f} %"
        speed = f"{tokens_per_second:,.0f} tokens/s"
        self._print(f"step {number:,} of {total:,} ({share}), loss {loss:.4f}, rate {rate:.2e}, {speed}{left}")

    def evaluated(self, step: int, metrics: Mapping[str, Any], samples: Sequence[Sample] = ()) -> None:
        self._print(f"step {step:,}: {scores(metrics)}")
        for source, predicted, true in samples[:SHOWN]:
            verdict = "right" if predicted == true else f"true: {true}"
            self._print(f"  {source} → {predicted} ({verdict})")

    def said(self, text: str) -> None:
        self._print(text)

    def finished(self, facts: Mapping[str, Any]) -> None:
        self.started(facts)

    def close(self) -> None:
        self._file.flush()

    def _print(self, *lines: str) -> None:
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        for line in lines:
            self._file.write(clean(line).encode(encoding, "replace").decode(encoding) + "\n")
        self._file.flush()


class Live(View):
    """A picture that rich draws anew in place. It has no thread: each call draws, at most every `every` seconds."""

    def __init__(self, console: Any, *, every: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live as Screen

        self._console, self._every, self._clock = console, every, clock
        self._next = float("-inf")
        self._step: tuple[int, int, str] | None = None
        self._scores = ""
        self._samples: Sequence[Sample] = ()
        self._screen = Screen(console=console, auto_refresh=False, get_renderable=self.picture)

    def started(self, facts: Mapping[str, Any]) -> None:
        for name, value in facts.items():
            self.said(f"{name}: {figure(value)}")
        self._screen.start(refresh=True)

    def step(
        self,
        number: int,
        total: int,
        loss: float,
        rate: float,
        tokens_per_second: float,
        seconds_left: float | None = None,
    ) -> None:
        left = "" if seconds_left is None else f" · {duration(seconds_left)} left"
        words = f"loss {loss:.4f} · rate {rate:.2e} · {tokens_per_second:,.0f} tokens/s{left}"
        self._step = number, total, words
        now = self._clock()
        if now >= self._next:
            self._next = now + self._every
            self._screen.refresh()

    def evaluated(self, step: int, metrics: Mapping[str, Any], samples: Sequence[Sample] = ()) -> None:
        self._scores = f"step {step:,}: {scores(metrics)}"
        self._samples = samples[:SHOWN]
        self._screen.refresh()

    def said(self, text: str) -> None:
        self._console.print(clean(text), markup=False, highlight=False)

    def finished(self, facts: Mapping[str, Any]) -> None:
        self.close()
        for name, value in facts.items():
            self.said(f"{name}: {figure(value)}")

    def close(self) -> None:
        self._screen.stop()

    def picture(self) -> Any:
        """The bar, the numbers, the latest metrics and samples."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        parts: list[Any] = []
        if self._step is not None:
            at, total, words = self._step
            bar = Table.grid(padding=(0, 1), expand=True)
            bar.add_column(ratio=1)
            bar.add_column(no_wrap=True)
            bar.add_row(ProgressBar(total=max(1, total), completed=at), Text(f"{at:,}/{total:,}"))
            parts += [bar, Text(words)]
        if self._scores:
            parts.append(Text(clean(self._scores), style="bold"))
        if self._samples:
            table = Table(box=None, padding=(0, 2, 0, 0))
            for name in ("source", "predicted", "true"):
                table.add_column(name, no_wrap=True, overflow="ellipsis", header_style="dim")
            for source, predicted, true in self._samples:
                style = "green" if predicted == true else "red"
                table.add_row(Text(clean(source)), Text(clean(predicted), style=style), Text(clean(true)))
            parts.append(table)
        return Group(*parts)


class Guarded(View):
    """A view whose failures stay its own: after the first, such as a closed pipe, it shows nothing more."""

    def __init__(self, inside: View, file: Stream) -> None:
        self.inside: View | None = inside
        self._file = file

    def started(self, facts: Mapping[str, Any]) -> None:
        self._try(lambda view: view.started(facts))

    def step(
        self,
        number: int,
        total: int,
        loss: float,
        rate: float,
        tokens_per_second: float,
        seconds_left: float | None = None,
    ) -> None:
        self._try(lambda view: view.step(number, total, loss, rate, tokens_per_second, seconds_left))

    def evaluated(self, step: int, metrics: Mapping[str, Any], samples: Sequence[Sample] = ()) -> None:
        self._try(lambda view: view.evaluated(step, metrics, samples))

    def said(self, text: str) -> None:
        self._try(lambda view: view.said(text))

    def finished(self, facts: Mapping[str, Any]) -> None:
        self._try(lambda view: view.finished(facts))

    def close(self) -> None:
        self._try(lambda view: view.close())

    def _try(self, act: Callable[[View], None]) -> None:
        if self.inside is None:
            return
        try:
            act(self.inside)
        except Exception as error:  # a run of days must not end because nobody is looking
            view, self.inside = self.inside, None
            if isinstance(error, BrokenPipeError):
                _drain(self._file)
            try:
                view.close()
            except Exception:  # it was broken before
                return


def live(file: Stream | None = None) -> View:
    """The view that suits where it is shown: standard error, unless `file` says otherwise."""
    file = sys.stderr if file is None else file
    if file.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console

        stream: Any = file  # rich asks for more than it uses
        return Guarded(Live(Console(file=stream)), file)
    return Guarded(Plain(file), file)


def figure(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def scores(metrics: Mapping[str, Any]) -> str:
    """The numbers among metrics; signatures are for the journal."""
    named = ((name, value) for name, value in metrics.items() if isinstance(value, int | float))
    return ", ".join(f"{name} {figure(value)}" for name, value in named)


def duration(seconds: float) -> str:
    """Seconds as people say them, in two units at most."""
    whole = max(0, round(seconds)) if seconds < float("inf") else 0
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def clean(text: str) -> str:
    """Text that cannot move a cursor or change a colour: what is not printable becomes �."""
    return "".join(c if c.isprintable() or c in JOINERS else "\N{REPLACEMENT CHARACTER}" for c in text)


def _drain(file: Stream) -> None:
    """Send what goes to a closed pipe nowhere, or the next to print there, and the interpreter at its exit, fails."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return
