"""Progress of a job on standard error: one updated line on a terminal, a few lines in a log."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

from regard.terminal import format_duration, write_lines

# Seconds, by whether standard error is a terminal.
FIRST_REPORT = {True: 1.0, False: 10.0}
REPORT_INTERVAL = {True: 0.2, False: 30.0}
SHOWN_WARNINGS = 3  # of each kind; the rest are counted


class Progress:
    """Reports lines done, speed and time left. `count` returns the number of lines, if known.

    Warnings inside its `with` block are printed as lines: the first few of each kind, and finally
    the number of the others.
    """

    def __init__(
        self,
        count: Callable[[], int | None] = lambda: None,
        *,
        done: int = 0,
        quiet: bool = False,
        file: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._clock, self._quiet = file or sys.stderr, clock, quiet
        self._terminal = self._file.isatty() and os.environ.get("TERM") != "dumb"
        self._count = count
        self._total: int | None = None
        self._done, self._first = done, done
        self._start, self._warnings = clock(), Counter[str]()
        self._next = self._start + FIRST_REPORT[self._terminal]
        self._report = ""
        self._catching = warnings.catch_warnings()

    def advance(self, lines: int) -> None:
        """Count more lines as done; report if it is time to."""
        self._done += lines
        if self._quiet or self._clock() < self._next:
            return
        if not self._report:
            self._total = self._count()
        self._report = self.report()
        if self._terminal:
            width = os.get_terminal_size(self._file.fileno()).columns or 80
            self._file.write(f"\r\x1b[K{self._report[: width - 1]}")
            self._file.flush()
        else:
            write_lines(self._file, self._report)
        self._next = self._clock() + REPORT_INTERVAL[self._terminal]

    def report(self) -> str:
        """Lines done, speed and time left, in one line."""
        rate = (self._done - self._first) / max(1e-9, self._clock() - self._start)
        if self._total is None:
            return f"{self._done:,} lines, {rate:,.0f} lines/s"
        left = format_duration(max(0, self._total - self._done) / max(1e-9, rate))
        share = 100 * self._done / max(1, self._total)
        done = f"{self._done:,} of {self._total:,} lines ({share:.0f} %)"
        return f"{done}, {rate:,.0f} lines/s, {left} left"

    def warn(self, kind: str, text: str) -> None:
        """Print a warning; `kind` is the plural that further ones are counted under."""
        self._warnings[kind] += 1
        if self._warnings[kind] <= SHOWN_WARNINGS:
            self.say(f"regard: warning: {text}")

    def say(self, text: str) -> None:
        """Print a line below the progress so far."""
        if self._terminal and self._report:
            self._file.write("\r\x1b[K")
        write_lines(self._file, text)

    def __enter__(self) -> Progress:
        self._catching.__enter__()
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = self._show_warning
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._catching.__exit__(kind, error, trace)
        for name, count in self._warnings.items():
            if count > SHOWN_WARNINGS:
                self.say(f"regard: warning: {count - SHOWN_WARNINGS:,} {name}")
        if self._report:
            took = self._clock() - self._start
            fresh = self._done - self._first
            rate = fresh / max(1e-9, took)
            self.say(f"{fresh:,} lines in {format_duration(took)}, {rate:,.0f} lines/s")

    def _show_warning(self, message: Warning | str, *_: object, **__: object) -> None:
        self.warn("more warnings of this kind", str(message))
