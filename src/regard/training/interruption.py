"""Interruption of a run by SIGINT or SIGTERM: recorded, and raised after the run was saved."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from regard.errors import RegardError
from regard.signals import exit_code


class Interrupted(RegardError):
    """The run was stopped by a signal, after it was saved."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.exit_code = exit_code(signal.Signals[name])


@contextmanager
def interruptible() -> Iterator[Callable[[], str | None]]:
    """Inside, SIGINT and SIGTERM are recorded; yields a function that returns the first name."""
    received: list[str] = []
    old = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            record = lambda n, _: received.append(signal.Signals(n).name)  # noqa: E731
            old[number] = signal.signal(number, record)
        except ValueError:  # only the main thread may set handlers
            break
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
