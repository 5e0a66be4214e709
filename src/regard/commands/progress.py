"""Progress: how far a job is, on standard error; one line in place on a terminal, now and then a line elsewhere."""

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

PATIENCE = {True: 1.0, False: 10.0}  # seconds before the first word, on a terminal and elsewhere
EVERY = {True: 0.2, False: 30.0}
SHOWN = 3  # warnings of each kind; the others are counted


class Progress:
    """What a person sees of a job. `count` says how many lines there are in all, if asked and if it can be known.

    Warnings within its `with` block are shown as lines too: the first few of each kind, then how many more there were.
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
        self._start, self._warned = clock(), Counter[str]()
        self._next = self._start + PATIENCE[self._terminal]
        self._words = ""
        self._catching = warnings.catch_warnings()

    def advance(self, lines: int) -> None:
        """So many more lines are answered."""
        self._done += lines
        if self._quiet or self._clock() < self._next:
            return
        if not self._words:
            self._total = self._count()
        self._words = self.words()
        if self._terminal:
            width = os.get_terminal_size(self._file.fileno()).columns or 80
            self._file.write(f"\r\x1b[K{self._words[: width - 1]}")
            self._file.flush()
        else:
            write_lines(self._file, self._words)
        self._next = self._clock() + EVERY[self._terminal]

    def words(self) -> str:
        """How far it is, how fast it goes and how long it will take."""
        rate = (self._done - self._first) / max(1e-9, self._clock() - self._start)
        if self._total is None:
            return f"{self._done:,} lines, {rate:,.0f} lines/s"
        left = format_duration(max(0, self._total - self._done) / max(1e-9, rate))
        share = 100 * self._done / max(1, self._total)
        return f"{self._done:,} of {self._total:,} lines ({share:.0f} %), {rate:,.0f} lines/s, {left} left"

    def warn(self, kind: str, text: str) -> None:
        """One warning; `kind` names what is counted when there are many."""
        self._warned[kind] += 1
        if self._warned[kind] <= SHOWN:
            self.say(f"regard: warning: {text}")

    def say(self, text: str) -> None:
        """A line that should not be missed."""
        if self._terminal and self._words:
            self._file.write("\r\x1b[K")
        write_lines(self._file, text)

    def __enter__(self) -> Progress:
        self._catching.__enter__()
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: self.warn("more warnings of this kind", str(message))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._catching.__exit__(kind, error, trace)
        for name, count in self._warned.items():
            if count > SHOWN:
                self.say(f"regard: warning: {count - SHOWN:,} {name}")
        if self._words:
            took = self._clock() - self._start
            fresh = self._done - self._first
            rate = fresh / max(1e-9, took)
            self.say(f"{fresh:,} lines in {format_duration(took)}, {rate:,.0f} lines/s")
