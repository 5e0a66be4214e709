"""Structured logs: one JSON object per line, written by a thread so that no request waits.

A full disk, a closed pipe or a reader that stalls loses lines, never requests: the queue of lines
is bounded, and the number of lost lines is logged when writing works again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

MAX_LINES = 10_000
PAUSE = 0.2  # seconds between two writes


class ServeLog:
    """Writes lines to a file descriptor in the background."""

    def __init__(self, descriptor: int, *, texts: bool = False) -> None:
        self.texts = texts  # whether the texts of requests are logged
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        self.lost = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, event: str, **facts: Any) -> None:
        """Queue a line; it is lost if too many wait."""
        if len(self._lines) < MAX_LINES:
            self._lines.append(_line(event, facts))  # here: the thread must not hold the GIL
        else:
            self.lost += 1

    def close(self, seconds: float = 2.0) -> None:
        """Write what is queued, within `seconds`."""
        self._closing.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closing.wait(PAUSE):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        while self._lines:
            count = min(len(self._lines), 500)
            lines = [self._lines.popleft() for _ in range(count)]
            if self.lost:
                lines.append(_line("lines-lost", {"count": self.lost}))
            if self._write("".join(lines).encode()):
                self.lost = 0
            else:
                self.lost += count

    def _write(self, content: bytes) -> bool:
        """Whether all was written. A partial line on a full disk is ended by the next write."""
        try:
            while content:
                content = content[os.write(self._descriptor, content) :]
        except OSError:
            return False
        return True

    # Events of the service.

    def queued(self, model: str, texts: int) -> None:
        """Not logged: every request is."""

    def started(self, model: str, texts: int, tokens: int, waited: float) -> None:
        """Not logged: metrics have the batches."""

    def finished(self, model: str, texts: int, tokens: int, seconds: float) -> None:
        """Not logged: metrics have the batches."""

    def rejected(self, model: str, reason: str) -> None:
        """Not logged: every request is, with its status."""

    def worker_started(self, model: str, pid: int) -> None:
        """Log a worker that can answer."""
        self.write("worker-started", model=model, pid=pid)

    def worker_died(self, model: str, pid: int, status: int) -> None:
        """Log a worker that died."""
        self.write("worker-died", model=model, pid=pid, status=status)


def _line(event: str, facts: dict[str, Any]) -> str:
    moment = time.time()
    second = int(moment)
    stamp = f"{_second(second)}.{int((moment - second) * 1000):03d}+00:00"
    return _encode({"time": stamp, "event": event, **facts}) + "\n"


_encode = json.JSONEncoder().encode


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class AllEvents:
    """Passes the events of the service on to several receivers: metrics and the log."""

    def __init__(self, *receivers: Any) -> None:
        self.receivers = receivers

    def queued(self, model: str, texts: int) -> None:
        """Texts were accepted."""
        for one in self.receivers:
            one.queued(model, texts)

    def started(self, model: str, texts: int, tokens: int, waited: float) -> None:
        """A batch went to a worker."""
        for one in self.receivers:
            one.started(model, texts, tokens, waited)

    def finished(self, model: str, texts: int, tokens: int, seconds: float) -> None:
        """A worker returned a batch."""
        for one in self.receivers:
            one.finished(model, texts, tokens, seconds)

    def rejected(self, model: str, reason: str) -> None:
        """A request was not answered."""
        for one in self.receivers:
            one.rejected(model, reason)

    def worker_started(self, model: str, pid: int) -> None:
        """A worker can answer."""
        for one in self.receivers:
            one.worker_started(model, pid)

    def worker_died(self, model: str, pid: int, status: int) -> None:
        """A worker died."""
        for one in self.receivers:
            one.worker_died(model, pid, status)
