"""Output: where answers go. A file grows beside its final name, and a killed job goes on where it stopped.

FILE.partial     answers so far, in order
FILE.progress    what was asked, and how many lines and bytes of FILE.partial are surely on the disk
FILE             there when all is answered, and not before
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from regard.commands.inputs import Line, Windows
from regard.disk import fsync_path
from regard.errors import RegardError

EVERY = 1.0  # seconds between notes of what is on the disk: no more work than that is done twice after a kill


class Output(ABC):
    """Takes answers window by window, in a `with` block."""

    done: int = 0  # lines answered so far, before and now

    def left(self, windows: Windows) -> Windows:
        """The windows that are still to be answered."""
        return windows

    @abstractmethod
    def write(self, window: Sequence[Line], text: str) -> None:
        """The answers to one window, whole lines all."""

    @abstractmethod
    def finish(self) -> None:
        """All is answered."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file, whether all is answered or not."""

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Stream(Output):
    """Standard output, or something else that cannot be renamed; each window is out before the next is answered."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, window: Sequence[Line], text: str) -> None:
        self._stream.write(text.encode())
        self._stream.flush()
        self.done += len(window)

    def finish(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if self._stream is not sys.stdout.buffer:
            self._stream.close()


class Held(NamedTuple):
    """What of a file is whole: so many lines and bytes, and the running sha256 of the sources that they answer.

    The three are exchanged together and never changed, so that an interrupt cannot fall between them.
    """

    lines: int
    bytes: int
    sources: Any


class Kept(Output):
    """A file, written whole or gone on with. `asked` is all that the answers depend on beside the lines."""

    def __init__(self, path: Path, asked: Mapping[str, Any], *, restart: bool = False) -> None:
        path = real(path)
        self._path, self._asked = path, dict(asked)
        self._partial, self._progress = (path.with_name(f"{path.name}.{role}") for role in ("partial", "progress"))
        self._held, self._noted = Held(0, 0, hashlib.sha256()), float("-inf")
        self._checked = self._finished = False
        try:
            self._file = self._opened()
            with ExitStack() as unless_begun:
                unless_begun.callback(self._file.close)
                self._begin(restart)
                unless_begun.pop_all()
        except OSError as error:
            raise self._failed(error) from None

    def left(self, windows: Windows) -> Windows:
        """The windows after those that were answered; an error when those are not the same lines as then."""
        skip, sources = self._held.lines, hashlib.sha256()
        for window in windows:
            if skip:
                sources = _seen(sources, window[:skip])
                skip, window = skip - len(window[:skip]), window[skip:]
                if not skip:
                    self._same(sources)
            if window:
                yield window
        if skip:
            self._same(sources)

    def write(self, window: Sequence[Line], text: str) -> None:
        written = text.encode()
        try:
            self._file.write(written)
            lines, size, sources = self._held
            self._held = Held(lines + len(window), size + len(written), _seen(sources, window))
            self.done = self._held.lines
            if time.monotonic() - self._noted >= EVERY:
                self._note()
        except OSError as error:
            raise self._failed(error) from None

    def finish(self) -> None:
        try:
            self._note()
            self._partial.replace(self._path)
            self._finished = True
            self._progress.unlink()
            fsync_path(self._path.parent)
        except OSError as error:
            raise self._failed(error) from None

    def close(self) -> None:
        with suppress(OSError):  # what went wrong was said before
            # What was not compared with the input yet is as it was noted: a new note could only spoil it.
            if self._checked and not self._finished and not self._file.closed:
                self._note()
        with suppress(OSError):
            self._file.close()

    def _opened(self) -> BinaryIO:
        """The partial file, this process's alone."""
        if self._path.is_dir():
            raise RegardError(f"cannot write {str(self._path)!r}: it is a folder; name a file in it")
        file = os.fdopen(os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such thing on Windows
            pass
        except BlockingIOError:
            file.close()
            raise RegardError(f"{str(self._partial)!r} is being written by another process; wait for it") from None
        return file

    def _begin(self, restart: bool) -> None:
        """Go on from what was noted, or begin anew."""
        size = self._file.seek(0, os.SEEK_END)
        noted = None if restart else self._read(size)
        if noted is not None and size >= noted["bytes"]:
            self._held, self._expected = Held(noted["lines"], noted["bytes"], hashlib.sha256()), noted["sources"]
        elif noted is not None and size:
            raise self._unlike(f"it has {size:,} bytes, fewer than the {noted['bytes']:,} that were noted")
        self.done = self._held.lines
        self._file.seek(self._held.bytes)
        self._file.truncate()
        if not self.done:
            self._checked = True
            self._note()

    def _read(self, size: int) -> dict[str, Any] | None:
        try:
            noted: dict[str, Any] = json.loads(self._progress.read_bytes())
            was, now = noted["asked"], json.loads(json.dumps(self._asked))
            lines, _, _ = noted["lines"], noted["bytes"], noted["sources"]
        except FileNotFoundError:
            if size:
                raise self._unlike(f"there is no {self._progress.name} beside it") from None
            return None
        except (ValueError, KeyError, TypeError):
            raise self._unlike(f"{self._progress.name} was altered") from None
        for name in {**was, **now} if lines else ():
            if was.get(name) != now.get(name):
                what = "the bundle was another one" if name == "bundle" else f"{name} was {was.get(name)!r}"
                raise self._unlike(f"{what}{'' if name == 'bundle' else f' and is {now.get(name)!r}'}")
        return noted

    def _same(self, sources: Any) -> None:
        if sources.hexdigest() != self._expected:
            raise self._unlike(f"the first {self.done:,} lines of the input were others")
        self._held = self._held._replace(sources=sources)
        self._checked = True

    def _note(self) -> None:
        """Note how far the file is, after making sure that it is."""
        self._file.flush()
        os.fsync(self._file.fileno())
        note = {
            "asked": self._asked,
            "lines": self._held.lines,
            "bytes": self._held.bytes,
            "sources": self._held.sources.hexdigest(),
        }
        fresh = self._progress.with_name(f".{self._progress.name}")
        fresh.write_text(json.dumps(note))
        fsync_path(fresh)
        fresh.replace(self._progress)
        self._noted = time.monotonic()

    def _failed(self, error: OSError) -> RegardError:
        return RegardError(f"cannot write {str(self._path)!r}: {error.strerror}")

    def _unlike(self, why: str) -> RegardError:
        return RegardError(
            f"cannot go on with {str(self._partial)!r}: {why}; ask as before, or begin anew with --restart"
        )


def real(path: Path) -> Path:
    """Where a file really is to be written: a link stays a link, and what it leads to is replaced."""
    return Path(os.path.realpath(path)) if path.is_symlink() or not path.name else path


def no_file(path: Path) -> bool:
    """Whether it is there, and a pipe or a device: written to, never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_apart(path: Path | None, inputs: Iterable[Path]) -> None:
    """Raise where an output would take an input's place."""
    for one in inputs:
        if path is not None and path.is_file() and one.is_file() and path.samefile(one):
            raise RegardError(f"--output {str(path)!r} is an input too, and would be lost; name another file")


def _seen(sources: Any, window: Sequence[Line]) -> Any:
    """A sha256 that has these lines too; the given one stays as it is."""
    more = sources.copy()
    for line in window:
        more.update(line.text.encode(errors="replace") + b"\0")
    return more


def output(path: Path | None, asked: Mapping[str, Any], *, restart: bool = False) -> Output:
    """Where answers go: a file, or standard output when there is no path."""
    if path is None:
        return Stream(sys.stdout.buffer)
    if no_file(path):
        return Stream(open(path, "wb"))
    return Kept(path, asked, restart=restart)
