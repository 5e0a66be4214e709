"""Signals of the command line: SIGTERM ends a command as Ctrl-C does, with its own exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM was received. Whatever cleans up after Ctrl-C also cleans up after it."""


def exit_code(number: int) -> int:
    """The exit code of a command that a signal ended, as shells report it: 128 + its number."""
    return 128 + number


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated in the main thread instead of ending the process at once,
    so that output files and runs stay resumable."""
    try:
        before = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # only the main thread may set handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
