"""Lines of bytes from files plain or compressed, and from standard input."""

from __future__ import annotations

import gzip
import importlib
import io
import lzma
import os
import shutil
import sys
import tempfile
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import RegardError

LONGEST_LINE = 1 << 24
BUFFER = 1 << 20
GZIP, XZ, ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
UTF8_MARK, UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


class CorpusError(RegardError):
    """A corpus that cannot be read as it is."""


class DamagedFile(CorpusError):
    """A compressed file that ends too soon or does not fit its own checksum."""


class File(ABC):
    """Something that can be read from its start any number of times."""

    name: str

    @abstractmethod
    def open(self) -> io.BufferedReader:
        """The bytes as they are stored."""


class OnDisk(File):
    """A regular file."""

    def __init__(self, path: str) -> None:
        self.name, self._path = legible(path), path

    def open(self) -> io.BufferedReader:
        """The bytes as they are stored."""
        try:
            return io.BufferedReader(io.FileIO(self._path), BUFFER)
        except OSError as error:
            raise CorpusError(f"cannot read {self.name!r}: {error.strerror}") from None


class Spooled(File):
    """A stream, such as standard input, kept in a nameless temporary file because a corpus is read more than once."""

    def __init__(self, name: str, stream: Any) -> None:
        self.name = name
        self._kept = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed with this object, and has no name to leave)
        weakref.finalize(self, self._kept.close)
        shutil.copyfileobj(stream, self._kept, BUFFER)
        self._kept.flush()

    def open(self) -> io.BufferedReader:
        """The bytes as they came."""
        return io.BufferedReader(_Positional(self._kept.fileno()), BUFFER)


def legible(name: str) -> str:
    """A name that can be written down; what in it is no UTF-8 cannot."""
    return os.fsencode(name).decode(errors="replace")


def file(path: str | os.PathLike[str]) -> File:
    """The file of this path; "-" is standard input. What can be read only once (a pipe) is spooled."""
    path = os.fspath(path)
    if path == "-":
        return Spooled("standard input", sys.stdin.buffer)
    if Path(path).is_dir():
        raise CorpusError(f"{path!r} is a folder; name the files in it")
    if Path(path).exists() and not Path(path).is_file():
        with open(path, "rb") as stream:
            return Spooled(path, stream)
    found = OnDisk(path)
    found.open().close()
    return found


def unpacked(stored: Any, name: str) -> io.BufferedReader:
    """The file's text as bytes, decompressed if its first bytes say so, whatever its name says."""
    first = stored.peek(6)[:6]
    if first.startswith(GZIP):
        return io.BufferedReader(_Partly(gzip.GzipFile(fileobj=stored)), BUFFER)
    if first.startswith(XZ):
        return io.BufferedReader(_Partly(lzma.LZMAFile(stored)), BUFFER)
    if first.startswith(ZSTD):
        return io.BufferedReader(_Zstd(stored, name), BUFFER)
    if first.startswith(UTF16_MARKS):
        raise CorpusError(f"{name} is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8")
    return stored


def lines(file: File) -> Iterator[tuple[int, bytes]]:
    """The file's lines with their numbers from 1, without line end or byte-order mark.

    Only a line feed (with or without a carriage return) ends a line, so that parallel files stay parallel whatever
    other separators Unicode knows. A line over LONGEST_LINE comes cut to one byte more, for the reader to refuse.
    """
    number = 0
    with (
        file.open() as stored,
        unpacked(stored, file.name) as stream,
        damage(file.name, lambda: number),
    ):
        while line := stream.readline(LONGEST_LINE + 1):
            rest = line
            while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
                rest = stream.readline(LONGEST_LINE + 1)
            number += 1
            if number == 1:
                line = line.removeprefix(UTF8_MARK)
                if b"\r" in line.rstrip(b"\r\n") and not line.endswith(b"\n"):
                    raise CorpusError(f"{file.name} ends lines in carriage returns alone; mend it: tr '\\r' '\\n'")
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def damage(name: str, number: Callable[[], int]) -> Iterator[None]:
    """What goes wrong while reading, said in one line, with the line that was read last."""
    try:
        yield
    except EOFError:
        raise DamagedFile(f"{name} is cut short after line {number():,}; copy it anew") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DamagedFile(f"{name} is damaged after line {number():,} ({error}); copy it anew") from None
    except OSError as error:
        raise CorpusError(f"cannot read {name!r} after line {number():,}: {error.strerror}") from None


class _Positional(io.RawIOBase):
    """Reads an open file from its start without moving the position that others share."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = os.pread(self._descriptor, len(buffer), self._position)
        buffer[: len(read)] = read
        self._position += len(read)
        return len(read)


class _Partly(io.RawIOBase):
    """Hands out what is there before it stumbles over damage; the library's own buffering would lose it."""

    def __init__(self, unpacking: gzip.GzipFile | lzma.LZMAFile) -> None:
        self._unpacking = unpacking

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._unpacking.read1(len(buffer))
        buffer[: len(read)] = read
        return len(read)


class _Zstd(io.RawIOBase):
    """Zstandard frames one after another; unlike zstandard's own reader it notices when the last is cut short."""

    def __init__(self, stored: io.BufferedReader, name: str) -> None:
        self._stored = stored
        self._module = _zstd(name)
        self._frame: Any = None
        self._packed = b""
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            self._packed = self._packed or self._stored.read(1 << 14)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError
                return 0
            if self._frame is None:
                self._frame = self._module.ZstdDecompressor()
                if hasattr(self._frame, "decompressobj"):
                    self._frame = self._frame.decompressobj()
            try:
                self._ready, self._packed = self._frame.decompress(self._packed), b""
            except self._module.ZstdError as error:
                raise zlib.error(f"zstandard: {error}") from None
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def _zstd(name: str) -> Any:
    """Python's own decompressor where there is one (3.14), else the package."""
    for module in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    raise CorpusError(f"reading {name} needs the package zstandard: pip install zstandard")
