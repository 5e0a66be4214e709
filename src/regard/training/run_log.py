"""The log of a run: log.jsonl, one event per line, append-only; and TensorBoard on request."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from regard.errors import RegardError


class RunLogError(RegardError):
    """A log that cannot be written or read."""


class RunLog:
    """Writes events as they happen, each handed to the operating system before the next.

    An existing log is continued, after removing a line that a kill left incomplete; the first new
    event is then "continued". A log without events leaves no file. `tensorboard` is a folder for
    TensorBoard, which gets the numbers of every event that has a step.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, tensorboard: str | os.PathLike[str] | None = None
    ) -> None:
        self.path = Path(path)
        self._board = None
        self._open_board = None if tensorboard is None else _tensorboard(tensorboard)
        try:
            self._made_folder = not self.path.parent.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 (open for the run)
            self._lock()
            self._removed = _truncate_incomplete(self.path)
        except OSError as error:
            raise self._error(error) from None
        self._continues = bool(self._removed or self.path.stat().st_size)

    def _lock(self) -> None:
        """Only one process may write a log: two runs in one folder would corrupt each other."""
        if not self.path.is_file():
            return
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows
            return
        except BlockingIOError:
            self._file.close()
            raise RunLogError(
                f"another process trains in {str(self.path.parent)!r}; wait until it ends, or "
                "use another --out"
            ) from None

    def write(self, event: str, **fields: Any) -> None:
        """Append an event. Numbers that are not finite, and unknown types, are written as text."""
        if "time" in fields:
            raise RunLogError(f"event {event!r} has a field 'time', which is reserved; rename it")
        if self._continues:
            self._continues = False
            self.write("continued", removed_bytes=self._removed)
        if self._open_board is not None:
            self._board, self._open_board = self._open_board(), None
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        values = _jsonable({"event": event, "time": now, **fields})
        text = json.dumps(values, ensure_ascii=False, allow_nan=False, default=str)
        line = text.encode("utf-8", "replace") + b"\n"
        try:
            before = os.fstat(self._file.fileno()).st_size
            if self._file.write(line) != len(line):  # the disk is full: remove the partial line
                self._file.truncate(before)
                raise OSError(28, os.strerror(28))
        except OSError as error:
            raise self._error(error) from None
        if self._board is not None and isinstance(fields.get("step"), int):
            for name, number in _numbers(event, fields):
                self._board.add_scalar(name, number, fields["step"])

    def close(self) -> None:
        """Close the log, and remove its file if it is empty."""
        empty = self.path.is_file() and not self.path.stat().st_size
        if empty and not self._file.closed:
            self.path.unlink()  # while it is locked, so that no other process writes to it
            if self._made_folder:
                with suppress(OSError):  # the folder has other files now
                    self.path.parent.rmdir()
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _error(self, error: OSError) -> RunLogError:
        path = str(self.path)
        return RunLogError(f"cannot write log {path!r}: {error.strerror}; fix this and run again")


def read_log(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The events of a log in order; an incomplete last line is ignored."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                event = _parse_event(line)
                if event is not None:
                    yield event
                elif line.endswith(b"\n"):
                    raise RunLogError(
                        f"{name!r}, line {number}, is not an event; fix or remove the line"
                    )
    except OSError as error:
        raise RunLogError(f"cannot read log {name!r}: {error.strerror}") from None


def _truncate_incomplete(path: Path) -> int:
    """Remove what follows the last complete event; returns the number of bytes removed."""
    with open(path, "rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start, line = _last_line(file, end)
            if _parse_event(line) is not None:
                break
            end = start
        if end < size:
            file.truncate(end)
    return size - end


def _last_line(file: BinaryIO, end: int) -> tuple[int, bytes]:
    """The start of the line that ends at `end`, and the line; reads backwards: logs are long."""
    line, start = b"", end
    while start and b"\n" not in line[:-1]:
        step = min(start, 1 << 12)
        start -= step
        file.seek(start)
        line = file.read(step) + line
    newline = line.rfind(b"\n", 0, len(line) - 1) + 1
    return start + newline, line[newline:]


def _parse_event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None if the line is incomplete or something else."""
    if not line.endswith(b"\n"):
        return None
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) and "event" in values else None


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inside) for key, inside in value.items()}
    return [_jsonable(inside) for inside in value] if isinstance(value, list | tuple) else value


def _numbers(prefix: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of an event by path, such as evaluated/metrics/phone_error_rate."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _numbers(f"{prefix}/{name}", value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            yield f"{prefix}/{name}", float(value)


def _tensorboard(folder: str | os.PathLike[str]) -> Callable[[], Any]:
    """A function that opens TensorBoard's file; raises now if TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise RunLogError(
            "TensorBoard is not installed; pip install 'regard[tensorboard]', or train without it"
        ) from None
    return partial(SummaryWriter, os.fspath(folder))
