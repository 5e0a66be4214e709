"""Interruption: a signal stops a training run between two steps, so that it can be saved first."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from regard.errors import RegardError


class Interrupted(RegardError):
    """The run was stopped by a signal, after it was saved."""

    exit_code = 130


@contextmanager
def interruptible() -> Iterator[Callable[[], str | None]]:
    """Inside, SIGINT and SIGTERM are recorded; the function yielded returns the first one's name."""
    received: list[str] = []
    old = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            old[number] = signal.signal(number, lambda n, _: received.append(signal.Signals(n).name))
        except ValueError:  # only the main thread may set handlers
            break
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
