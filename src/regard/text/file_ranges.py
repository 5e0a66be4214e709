"""Parts of a file: a range of bytes that holds whole lines, or a range of rows of a columnar file.

A line belongs to the range in which its first byte lies. So consecutive ranges hold every line
exactly once, and a range is found without reading what precedes it.
"""

from __future__ import annotations

import io
from functools import cached_property
from typing import Any

from regard.text.files import BUFFER_BYTES, UTF8, File, decompress


class FilePart(File):
    """A part of a file, between two positions; it is opened like a file."""

    def __init__(self, file: File, start: int, stop: int) -> None:
        self.whole, self.start, self.stop = file, start, stop
        self.name, self.encoding = file.name, file.encoding
        self.carriage_returns = file.carriage_returns

    def open(self) -> io.BufferedReader:
        """Open the stored bytes of the whole file."""
        return self.whole.open()


class RowRange(FilePart):
    """Rows `start` to `stop` (from 0) of a columnar file; its reader skips the other rows."""


class LineRange(FilePart):
    """The lines of a plain UTF-8 file that begin in bytes `start` to `stop`.

    Its first line is empty unless it begins the file, and its readers drop it: the range is opened
    at the line end before it, because readers treat the first line of a file differently (a
    byte-order mark).
    """

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The first byte of the first line, and of the first line after the range."""
        with self.whole.open() as stored:
            return _line_start(stored, self.start), _line_start(stored, self.stop)

    @property
    def begins_file(self) -> bool:
        """Whether the first line of the file is in this range, or the range is empty there."""
        return self.bounds[0] == 0

    def open(self) -> io.BufferedReader:
        """Open the bytes of the range, and of the line end before it."""
        first, last = self.bounds
        start = first if first in (0, last) else first - 1
        return io.BufferedReader(_RangeReader(self.whole, start, last), BUFFER_BYTES)

    @cached_property
    def lines_before(self) -> int:
        """The number of lines before the range: reads the file up to it."""
        return count_line_ends(self.whole, 0, self.bounds[0])

    def count(self) -> int:
        """The number of lines in the range."""
        first, last = self.bounds
        ends = count_line_ends(self.whole, first, last)
        with self.whole.open() as stored:
            stored.seek(max(0, last - 1))
            return ends + (last > first and stored.read(1) != b"\n")

    def line_number(self, number: int) -> int:
        """The number in the whole file of a line of the opened range."""
        return number if self.begins_file else number - 1 + self.lines_before


class LinePlace:
    """FILE:LINE of a line in a range. The lines before it are counted when it is printed."""

    def __init__(self, part: LineRange, number: int) -> None:
        self._part, self._number = part, number

    def __str__(self) -> str:
        return f"{self._part.name}:{self._part.line_number(self._number)}"


def place_in(file: File, number: int) -> str | LinePlace:
    """Where a line is (FILE:LINE), for messages."""
    return LinePlace(file, number) if isinstance(file, LineRange) else f"{file.name}:{number}"


def plain_size(file: File) -> int | None:
    """The bytes of a file that can be split at line ends: UTF-8, not compressed, seekable."""
    if file.encoding != UTF8 or file.carriage_returns:
        return None
    with file.open() as stored:
        if not stored.seekable() or decompress(stored, file.name) is not stored:
            return None
        return stored.seek(0, io.SEEK_END)


def count_line_ends(file: File, start: int, stop: int) -> int:
    """The number of LF in a range of bytes."""
    count = 0
    with file.open() as stored:
        stored.seek(start)
        while block := stored.read(min(BUFFER_BYTES, stop - start)):
            count, start = count + block.count(b"\n"), start + len(block)
    return count


def _line_start(stored: io.BufferedReader, position: int) -> int:
    """The first byte at or after a position that begins a line; the size if there is none."""
    if position <= 0:
        return 0
    stored.seek(position - 1)
    while block := stored.readline(BUFFER_BYTES):
        if block.endswith(b"\n"):
            break
    return stored.tell()


class _RangeReader(io.RawIOBase):
    """The bytes of a file from one position to another."""

    def __init__(self, file: File, start: int, stop: int) -> None:
        self._stored, self._left = file.open(), stop - start
        self._stored.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._stored.read1(min(len(buffer), self._left)) if self._left > 0 else b""
        buffer[: len(read)] = read
        self._left -= len(read)
        return len(read)

    def close(self) -> None:
        self._stored.close()
        super().close()
