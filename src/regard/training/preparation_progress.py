"""Progress of preparation: pairs read and tokenized, reported every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from regard.terminal import format_duration

EVERY_SECONDS = 5.0
CHECK_EVERY = 1 << 12  # pairs between two looks at the clock
T = TypeVar("T")


class PreparationProgress:
    """Messages about long stages: at most one every EVERY_SECONDS, so that a small corpus gives
    none."""

    def __init__(
        self, report: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.report, self._clock = report, clock
        self._began = self._stage_began = clock()
        self._next = self._began + EVERY_SECONDS

    def stage(self, text: str) -> None:
        """Begin a stage; it is named if preparation has taken some seconds already."""
        self._stage_began = self._clock()
        if self._stage_began - self._began >= EVERY_SECONDS:
            self.report(text)

    def update(self, verb: str, count: int, total: int | None = None) -> None:
        """Report `count` pairs done, of `total`, if it is time to."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + EVERY_SECONDS
        per_second = count / max(now - self._stage_began, 1e-9)
        message = f"{verb} {count:,} pairs"
        if total is not None and total > count:
            left = format_duration((total - count) / max(per_second, 1e-9))
            message = f"{verb} {count:,} of {total:,} pairs, {left} left"
        self.report(f"{message} ({per_second:,.0f} pairs/s)")

    def watch(self, pairs: Iterable[T], verb: str) -> Iterator[T]:
        """Pass the pairs through and report how many there were."""
        for count, pair in enumerate(pairs, 1):
            if not count % CHECK_EVERY:
                self.update(verb, count)
            yield pair


def no_progress() -> PreparationProgress:
    """Reports nothing."""
    return PreparationProgress(lambda text: None)
