"""Long calls of the native engine that signals can interrupt.

Python handles signals in the main thread, between two of its own instructions: never while that
thread is inside the engine. So a long call runs in another thread, and the main thread waits where
signals are handled. If a handler raises (Ctrl-C), the engine is asked to stop.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

WAIT_SECONDS = 0.5  # for the engine to stop, which takes milliseconds
POLL_SECONDS = 1.0  # where waiting cannot be interrupted, signals are handled this often


class Cancellation:
    """A request to stop a call of the engine; `handle` is its pointer."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.handle: int = library.regard_cancellation_create()

    def request(self) -> None:
        """Make the call fail as soon as possible."""
        self._library.regard_cancel(self.handle)

    def __del__(self) -> None:
        self._library.regard_cancellation_destroy(self.handle)


def call_interruptibly(library: ctypes.CDLL, function: Callable[[int | None], T]) -> T:
    """The result of `function`, which passes the given handle to the engine.

    In the main thread, an exception of a signal handler ends the call at once.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(None)
    call = _Call(function, Cancellation(library))
    try:
        call.start()
        while call.is_alive():
            call.join(POLL_SECONDS)
    except BaseException:
        call.cancellation.request()
        if call.is_alive():
            call.join(WAIT_SECONDS)
        raise
    return call.result()


class _Call(threading.Thread, Generic[T]):
    """A function in a thread of its own. It does not keep the process from ending."""

    def __init__(self, function: Callable[[int | None], T], cancellation: Cancellation) -> None:
        super().__init__(daemon=True, name="regard native engine")
        self.cancellation = cancellation
        self._function = function
        self._outcome: list[Any] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._outcome.append(self._function(self.cancellation.handle))
        except BaseException as error:  # raised again in the waiting thread
            self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        (value,) = self._outcome
        return value
