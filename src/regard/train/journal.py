"""The journal of a run: journal.jsonl, one event a line, only ever added to; and TensorBoard for those who want it."""

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
from typing import Any

from regard.errors import RegardError


class JournalError(RegardError):
    """A journal that cannot be written or read."""


class Journal:
    """Writes events as they happen, each on the disk's side of the process before the next.

    On a journal that exists it goes on, after cutting off a line that a kill left half-written, and says so in an
    event of its own before the next. One that gets no event is not left behind. `tensorboard` is a folder for
    TensorBoard; it gets the numbers of every event with a step.
    """

    def __init__(self, path: str | os.PathLike[str], *, tensorboard: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path)
        self._board = None
        self._boarding = None if tensorboard is None else _board(tensorboard)
        try:
            self._own = not self.path.parent.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 (it stays open for the run)
            self._lock()
            self._cut = _mend(self.path)
        except OSError as error:
            raise self._failed(error) from None
        self._continues = bool(self._cut or self.path.stat().st_size)

    def _lock(self) -> None:
        """One process writes a journal: two in one folder would spoil each other's run."""
        if not self.path.is_file():
            return
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such thing on Windows
            return
        except BlockingIOError:
            self._file.close()
            where = str(self.path.parent)
            raise JournalError(f"another process trains in {where!r}; wait for it, or use another --out") from None

    def write(self, event: str, **fields: Any) -> None:
        """Add an event. A number that is not finite becomes its name, for JSON has none; an unknown thing its text."""
        if "time" in fields:
            raise JournalError(f"event {event!r} brings its own field 'time', which the journal writes; rename it")
        if self._continues:
            self._continues = False
            self.write("continued", cut=self._cut)
        if self._boarding is not None:
            self._board, self._boarding = self._boarding(), None
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        values = _plain({"event": event, "time": now, **fields})
        line = json.dumps(values, ensure_ascii=False, allow_nan=False, default=str).encode("utf-8", "replace") + b"\n"
        try:
            before = os.fstat(self._file.fileno()).st_size
            if self._file.write(line) != len(line):  # the disk took a part of it: take that back
                self._file.truncate(before)
                raise OSError(28, os.strerror(28))
        except OSError as error:
            raise self._failed(error) from None
        if self._board is not None and isinstance(fields.get("step"), int):
            for name, number in _numbers(event, fields):
                self._board.add_scalar(name, number, fields["step"])

    def close(self) -> None:
        """Write no more."""
        if self.path.is_file() and not self.path.stat().st_size and not self._file.closed:
            self.path.unlink()  # while it is still locked: nobody else has begun to write it
            if self._own:
                with suppress(OSError):  # other things are in it by now
                    self.path.parent.rmdir()
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _failed(self, error: OSError) -> JournalError:
        return JournalError(f"cannot write journal {str(self.path)!r}: {error.strerror}; mend that and run again")


def read(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The events of a journal, in order; the last line is left out while it is half-written."""
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                event = _event(line)
                if event is not None:
                    yield event
                elif line.endswith(b"\n"):
                    raise JournalError(f"{os.fspath(path)!r}, line {number}, is no event; mend or remove that line")
    except OSError as error:
        raise JournalError(f"cannot read journal {os.fspath(path)!r}: {error.strerror}") from None


def _mend(path: Path) -> int:
    """Cut off what follows the last whole event at the end of a file; how many bytes that was."""
    with open(path, "rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start, line = _last_line(file, end)
            if _event(line) is not None:
                break
            end = start
        if end < size:
            file.truncate(end)
    return size - end


def _last_line(file: Any, end: int) -> tuple[int, bytes]:
    """Where the line that ends at `end` starts, and the line; read backwards, for journals grow long."""
    line, start = b"", end
    while start and b"\n" not in line[:-1]:
        step = min(start, 1 << 12)
        start -= step
        file.seek(start)
        line = file.read(step) + line
    newline = line.rfind(b"\n", 0, len(line) - 1) + 1
    return start + newline, line[newline:]


def _event(line: bytes) -> dict[str, Any] | None:
    """The event in a line, if the line is whole."""
    if not line.endswith(b"\n"):
        return None
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) and "event" in values else None


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inside) for key, inside in value.items()}
    return [_plain(inside) for inside in value] if isinstance(value, list | tuple) else value


def _numbers(prefix: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of an event by their paths, such as evaluated/metrics/ser."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _numbers(f"{prefix}/{name}", value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            yield f"{prefix}/{name}", float(value)


def _board(folder: str | os.PathLike[str]) -> Callable[[], Any]:
    """What opens TensorBoard's file; that it can is known before."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise JournalError(
            "TensorBoard is not installed; pip install 'regard[tensorboard]', or train without it"
        ) from None
    return partial(SummaryWriter, os.fspath(folder))
