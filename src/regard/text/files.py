"""Lines of UTF-8 from plain or compressed files in any encoding, and from standard input."""

from __future__ import annotations

import bz2
import codecs
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

MAX_LINE_BYTES = 1 << 24
BUFFER_BYTES = 1 << 20
ZSTD_BYTES = 1 << 12  # decompressed in one call: blocks of four may hold 128 KiB each
GZIP = b"\x1f\x8b"
BZIP2 = b"BZh"
XZ = b"\xfd7zXZ\x00"
ZSTD = b"\x28\xb5\x2f\xfd"
UTF8 = "utf-8"
UTF8_BOM = b"\xef\xbb\xbf"
READ_ERRORS = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)  # of damaged files


class CorpusError(RegardError):
    """A corpus that cannot be read."""


class DamagedFile(CorpusError):
    """A compressed file that is truncated or fails its checksum."""


class File(ABC):
    """A file that can be read from its start any number of times.

    `encoding` and `carriage_returns` (bare CR ends a line) are set when the file is inspected.
    """

    name: str
    encoding: str = UTF8
    carriage_returns: bool = False

    @abstractmethod
    def open(self) -> io.BufferedReader:
        """Open the stored bytes."""


class DiskFile(File):
    """A regular file."""

    def __init__(self, path: str) -> None:
        self.name = printable_name(path)
        self.path = path

    def open(self) -> io.BufferedReader:
        """Open the stored bytes."""
        try:
            return io.BufferedReader(io.FileIO(self.path), BUFFER_BYTES)
        except OSError as error:
            raise CorpusError(f"cannot read {self.name!r}: {error.strerror}") from None


class SpooledFile(File):
    """A stream copied to an anonymous temporary file, because a corpus is read more than once."""

    def __init__(self, name: str, stream: Any) -> None:
        self.name = name
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115 (closed by the finalizer)
        weakref.finalize(self, self._copy.close)
        shutil.copyfileobj(stream, self._copy, BUFFER_BYTES)
        self._copy.flush()

    def open(self) -> io.BufferedReader:
        """Open the bytes of the stream."""
        return io.BufferedReader(_PositionalReader(self._copy.fileno()), BUFFER_BYTES)


def printable_name(name: str) -> str:
    """A file name with bytes that are not UTF-8 replaced, so that it can be printed."""
    return os.fsencode(name).decode(errors="replace")


def open_file(path: str | os.PathLike[str]) -> File:
    """The file at a path; "-" is standard input. Pipes can be read only once, and are spooled."""
    path = os.fspath(path)
    if path == "-":
        return SpooledFile("standard input", sys.stdin.buffer)
    if Path(path).is_dir():
        raise CorpusError(f"{path!r} is a folder; name the files in it")
    if Path(path).exists() and not Path(path).is_file():
        with open(path, "rb") as stream:
            return SpooledFile(path, stream)
    file = DiskFile(path)
    file.open().close()
    return file


def decompress(stored: Any, name: str) -> io.BufferedReader:
    """The content of a file, decompressed according to its first bytes (not its name)."""
    first = stored.peek(6)[:6]
    if first.startswith(GZIP):
        return io.BufferedReader(_PartialReader(gzip.GzipFile(fileobj=stored)), BUFFER_BYTES)
    if first.startswith(BZIP2):
        return io.BufferedReader(_PartialReader(bz2.BZ2File(stored)), BUFFER_BYTES)
    if first.startswith(XZ):
        return io.BufferedReader(_PartialReader(lzma.LZMAFile(stored)), BUFFER_BYTES)
    if first.startswith(ZSTD):
        return io.BufferedReader(_ZstdReader(stored, name), BUFFER_BYTES)
    return stored


def open_text(stored: Any, file: File) -> io.BufferedReader:
    """The decompressed content of a file, transcoded to UTF-8 with LF or CRLF line ends."""
    stream = decompress(stored, file.name)
    if file.encoding == UTF8 and not file.carriage_returns:
        return stream
    transcoder = Transcoder(stream, file.encoding, carriage_returns=file.carriage_returns)
    return io.BufferedReader(transcoder, BUFFER_BYTES)


def read_lines(file: File) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a file (from 1), without line ends and byte-order mark.

    Only LF or CRLF ends a line, so that parallel files stay aligned whatever other separators
    Unicode defines. A line over MAX_LINE_BYTES is cut to one byte more, and the caller rejects it.
    """
    number = 0
    with (
        file.open() as stored,
        open_text(stored, file) as stream,
        report_damage(file.name, lambda: number),
    ):
        while line := stream.readline(MAX_LINE_BYTES + 1):
            rest = line
            while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE_BYTES + 1)
            number += 1
            if number == 1:
                line = line.removeprefix(UTF8_BOM)
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def report_damage(name: str, last_line: Callable[[], int]) -> Iterator[None]:
    """Turn read errors into one line that names the file and the last line read."""
    try:
        yield
    except EOFError:
        what = f"{name} is truncated after line {last_line():,}"
        raise DamagedFile(f"{what}; copy it again") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        what = f"{name} is damaged after line {last_line():,} ({error})"
        raise DamagedFile(f"{what}; copy it again") from None
    except OSError as error:
        where = f"{name!r} after line {last_line():,}"
        raise CorpusError(f"cannot read {where}: {error.strerror}") from None


class Transcoder(io.RawIOBase):
    """A stream in another encoding, read as UTF-8. Undecodable bytes stay as they are, so that the
    reader reports their line."""

    def __init__(self, stream: Any, encoding: str, *, carriage_returns: bool = False) -> None:
        self._stream = stream
        # In UTF-16 and UTF-32, the bytes of an invalid character cannot be kept.
        self._errors = "replace" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
        self._decoder = codecs.getincrementaldecoder(encoding)(self._errors)
        self._carriage_returns = carriage_returns
        self._ready = b""
        self._ended = False

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with UTF-8."""
        while not self._ready and not self._ended:
            block = self._stream.read1(BUFFER_BYTES)
            self._ended = not block
            text = self._decoder.decode(block, final=self._ended)
            if self._carriage_returns:
                text = text.replace("\r", "\n")
            self._ready = text.encode("utf-8", self._errors)
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


class _PositionalReader(io.RawIOBase):
    """Reads an open file from its start without moving its shared position."""

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


class _PartialReader(io.RawIOBase):
    """Returns all data before a damaged block; the library's own buffering would lose it."""

    def __init__(self, decompressor: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile) -> None:
        self._decompressor = decompressor

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            read = self._decompressor.read1(len(buffer))
        except OSError as error:
            if error.errno is None:  # bz2 reports damaged data so
                raise zlib.error(str(error)) from None
            raise
        buffer[: len(read)] = read
        return len(read)


class _ZstdReader(io.RawIOBase):
    """Concatenated Zstandard frames; unlike zstandard's own reader, it detects a truncated
    frame."""

    def __init__(self, stored: io.BufferedReader, name: str) -> None:
        self._stored = stored
        self._module = _zstd_module(name)
        self._frame: Any = None
        self._compressed = memoryview(b"")
        self._ready = memoryview(b"")
        self._size = 1 << 8

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as possible without waiting for more than its first bytes."""
        filled = 0
        while filled < len(buffer):
            if not self._ready:
                if not self._compressed and (filled or not self._read_stored()):
                    break
                self._decompress()
            count = min(len(buffer) - filled, len(self._ready))
            buffer[filled : filled + count] = self._ready[:count]
            self._ready, filled = self._ready[count:], filled + count  # views: nothing is copied
        return filled

    def _read_stored(self) -> bool:
        """Read more compressed bytes; returns whether there are any."""
        self._compressed = memoryview(self._stored.read(1 << 14))
        if not self._compressed and self._frame is not None:
            raise EOFError
        return bool(self._compressed)

    def _decompress(self) -> None:
        """Decompress the next piece of what was read."""
        piece, self._compressed = self._compressed[: self._size], self._compressed[self._size :]
        if self._frame is None:
            self._frame = self._module.ZstdDecompressor()
            if self._module.__name__ == "zstandard":
                self._frame = self._frame.decompressobj()
        try:
            self._ready = memoryview(self._frame.decompress(piece))
        except self._module.ZstdError as error:
            raise zlib.error(f"zstandard: {error}") from None
        # Results that fit into the CPU's cache are read at twice the speed.
        large = len(self._ready) > BUFFER_BYTES
        self._size = max(16, self._size // 2) if large else min(ZSTD_BYTES, self._size * 2)
        if self._frame.eof:
            rest = self._frame.unused_data
            self._compressed, self._frame = memoryview(rest + bytes(self._compressed)), None


def _zstd_module(name: str) -> Any:
    """The standard library's decompressor (Python 3.14 and later) or the zstandard package."""
    for module in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    raise CorpusError(f"reading {name} needs the package zstandard: pip install zstandard")
