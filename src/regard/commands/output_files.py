"""Output of `regard predict`: standard output, or a file that appears complete and can be resumed.

FILE.partial     answers so far, in order
FILE.progress    the options, and how many lines and bytes of FILE.partial are safely on disk
FILE             appears when all lines are answered
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from regard.commands.inputs import InputLine, Windows
from regard.disk import fsync_path
from regard.errors import RegardError

Convert = Callable[[Path, Path], None]  # from the complete partial file to the output
SAVE_SECONDS = 1.0  # at most this much work is repeated after a kill


class PredictOutput(ABC):
    """Takes answers window by window, in a `with` block."""

    done: int = 0  # lines answered so far, including those of earlier runs
    name: str = ""  # of the file, if it can be resumed
    rejected: int = 0  # sources among them that were rejected

    def remaining(self, windows: Windows) -> Windows:
        """The windows that are not answered yet."""
        return windows

    @abstractmethod
    def write(self, window: Sequence[InputLine], text: str, rejected: int = 0) -> None:
        """Write the answers to one window, as complete lines; `rejected` of them are empty."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the output: all lines are answered."""

    @abstractmethod
    def close(self) -> None:
        """Close the file, complete or not."""

    def __enter__(self) -> PredictOutput:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class StreamOutput(PredictOutput):
    """Standard output, a pipe or a device; each window is flushed before the next is answered."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, window: Sequence[InputLine], text: str, rejected: int = 0) -> None:
        self._stream.write(text.encode())
        self._stream.flush()
        self.done += len(window)
        self.rejected += rejected

    def finish(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if self._stream is not sys.stdout.buffer:
            self._stream.close()


class Written(NamedTuple):
    """How much of the partial file is complete, the running sha256 of the lines it answers, and how
    many of them were rejected.

    All are replaced together, so that an interrupt cannot separate them.
    """

    lines: int
    bytes: int
    sources: Any
    rejected: int = 0


class ResumableFile(PredictOutput):
    """A file that appears when it is complete; a job that was stopped resumes where it was.

    `options` are all that the answers depend on besides the input lines. `convert` writes the
    complete partial file in the final format.
    """

    def __init__(
        self,
        path: Path,
        options: Mapping[str, Any],
        *,
        restart: bool = False,
        convert: Convert | None = None,
    ) -> None:
        path = resolve_link(path)
        self._convert = convert
        self._path, self._options, self.name = path, dict(options), str(path)
        self._partial = path.with_name(f"{path.name}.partial")
        self._progress = path.with_name(f"{path.name}.progress")
        self._written, self._saved = Written(0, 0, hashlib.sha256()), float("-inf")
        self._checked = self._finished = False
        try:
            self._file = self._open()
            with ExitStack() as on_error:
                on_error.callback(self._file.close)
                self._resume(restart)
                on_error.pop_all()
        except OSError as error:
            raise write_error(self._path, error) from None

    def remaining(self, windows: Windows) -> Windows:
        """The windows after the answered lines; raises if the input's first lines have changed."""
        skip, sources = self._written.lines, hashlib.sha256()
        for window in windows:
            if skip:
                sources = _add_to_hash(sources, window[:skip])
                skip, window = skip - len(window[:skip]), window[skip:]
                if not skip:
                    self._check_sources(sources)
            if window:
                yield window
        if skip:
            self._check_sources(sources)

    def write(self, window: Sequence[InputLine], text: str, rejected: int = 0) -> None:
        data = text.encode()
        try:
            self._file.write(data)
            was = self._written
            sources = _add_to_hash(was.sources, window)
            lines, rejected = was.lines + len(window), was.rejected + rejected
            self._written = Written(lines, was.bytes + len(data), sources, rejected)
            self.done, self.rejected = lines, rejected
            if time.monotonic() - self._saved >= SAVE_SECONDS:
                self._save_progress()
        except OSError as error:
            raise write_error(self._path, error) from None

    def finish(self) -> None:
        try:
            self._save_progress()
            if self._convert is not None:
                fresh = self._path.with_name(f".{self._path.name}.new")
                self._convert(self._partial, fresh)
                fsync_path(fresh)
                fresh.replace(self._partial)
            self._partial.replace(self._path)
            self._finished = True
            self._progress.unlink()
            fsync_path(self._path.parent)
        except OSError as error:
            raise write_error(self._path, error) from None

    def close(self) -> None:
        with suppress(OSError):  # reported before
            # Until the input is checked, the progress on disk is right and must not be replaced.
            if self._checked and not self._finished and not self._file.closed:
                self._save_progress()
        with suppress(OSError):
            self._file.close()

    def _open(self) -> BinaryIO:
        """The partial file, locked for this process."""
        check_not_folder(self._path)
        file = os.fdopen(os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has no fcntl
            pass
        except BlockingIOError:
            file.close()
            what = f"another process is writing {str(self._partial)!r}"
            raise RegardError(f"{what}; wait for it, or name another --output") from None
        return file

    def _resume(self, restart: bool) -> None:
        """Continue from the saved progress, or start over."""
        size = self._file.seek(0, os.SEEK_END)
        saved = None if restart else self._read_progress(size)
        if saved is not None and size >= saved["bytes"]:
            rejected = saved.get("rejected", 0)
            self._written = Written(saved["lines"], saved["bytes"], hashlib.sha256(), rejected)
            self._expected = saved["sources"]
        elif saved is not None and size:
            raise self._cannot_resume(f"it has {size:,} bytes instead of {saved['bytes']:,}")
        self.done, self.rejected = self._written.lines, self._written.rejected
        self._file.seek(self._written.bytes)
        self._file.truncate()
        if not self.done:
            self._checked = True
            self._save_progress()

    def _read_progress(self, size: int) -> dict[str, Any] | None:
        try:
            saved: dict[str, Any] = json.loads(self._progress.read_bytes())
            was, now = saved["options"], json.loads(json.dumps(self._options))
            lines, _, _ = saved["lines"], saved["bytes"], saved["sources"]
        except FileNotFoundError:
            if size:
                raise self._cannot_resume(f"{self._progress.name} is missing") from None
            return None
        except (ValueError, KeyError, TypeError):
            raise self._cannot_resume(f"{self._progress.name} is damaged") from None
        for name in {**was, **now} if lines else ():
            if was.get(name) != now.get(name):
                if name == "bundle":
                    raise self._cannot_resume("it was written with another bundle")
                raise self._cannot_resume(f"{name} was {was.get(name)!r}, now {now.get(name)!r}")
        return saved

    def _check_sources(self, sources: Any) -> None:
        if sources.hexdigest() != self._expected:
            raise self._cannot_resume(f"the first {self.done:,} lines of the input have changed")
        self._written = self._written._replace(sources=sources)
        self._checked = True

    def _save_progress(self, **facts: Any) -> None:
        """Record how many lines are complete, after they are on disk, and other facts."""
        self._file.flush()
        os.fsync(self._file.fileno())
        written = self._written
        progress = {"options": self._options, "lines": written.lines, "bytes": written.bytes}
        progress |= {"sources": written.sources.hexdigest(), "rejected": written.rejected}
        fresh = self._progress.with_name(f".{self._progress.name}")
        fresh.write_text(json.dumps({**progress, **facts}))
        fsync_path(fresh)
        fresh.replace(self._progress)
        self._saved = time.monotonic()

    def _cannot_resume(self, why: str) -> RegardError:
        return RegardError(
            f"cannot resume {str(self._partial)!r}: {why}; "
            "use the same bundle, options and input, or start over with --restart"
        )


def resolve_link(path: Path) -> Path:
    """The file to write: a symbolic link stays, and the file that it points to is replaced."""
    return Path(os.path.realpath(path)) if path.is_symlink() or not path.name else path


def is_special_file(path: Path) -> bool:
    """Whether the path is a pipe or a device, which is written to and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_not_folder(path: Path) -> None:
    """Raise if the output is a folder."""
    if path.is_dir():
        raise RegardError(f"cannot write {str(path)!r}: it is a folder; name a file in it")


def write_error(path: Path, error: OSError) -> RegardError:
    """The error of a file that cannot be written."""
    return RegardError(f"cannot write {str(path)!r}: {error.strerror}")


def _add_to_hash(sources: Any, window: Sequence[InputLine]) -> Any:
    """A copy of the sha256 that includes these lines."""
    more = sources.copy()
    for line in window:
        more.update(line.text.encode(errors="replace") + b"\0")
    return more


def open_output(
    path: Path | None,
    options: Mapping[str, Any],
    *,
    restart: bool = False,
    convert: Convert | None = None,
) -> PredictOutput:
    """The output of a job: a file, or standard output without a path."""
    if path is None:
        return StreamOutput(sys.stdout.buffer)
    if is_special_file(path):
        return StreamOutput(open(path, "wb"))
    return ResumableFile(path, options, restart=restart, convert=convert)
