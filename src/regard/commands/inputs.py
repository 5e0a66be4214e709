"""Inputs: lines to answer, from arguments, files or standard input, in windows that are searched together.

A window is what is there by now, no more: so a person at a terminal is answered line by line, a file in thousands, and
whoever writes into a pipe slowly need not wait for more. The windows of files fall alike each time, so that a job which
goes on after a kill computes the same numbers to the last digit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from regard.errors import RegardError
from regard.pipeline import FIRST_LINES, MOST_LINES
from regard.text.corpus import detect_format
from regard.text.files import (
    BUFFER_BYTES,
    MAX_LINE_BYTES,
    UTF8_BOM,
    CorpusError,
    File,
    decompress,
    open_file,
    read_lines,
    report_damage,
)
from regard.text.row_format import ColumnRequest, ParsedRow, decode_line

STANDARD_INPUT = "standard input"


class Line(NamedTuple):
    """One source with the place it comes from."""

    place: str
    text: str


Windows = Iterator[list[Line]]


class Inputs:
    """Lines from TEXT arguments, or files, or (with neither) standard input; `column` reads files as tables."""

    def __init__(self, texts: Sequence[str] = (), files: Sequence[str] = (), column: str | int | None = None) -> None:
        if texts and files:
            raise RegardError(f"give texts or --input, not both; got {texts[0]!r} and {files[0]!r}")
        stream = not texts and list(files) in ([], ["-"])
        if column is not None and (stream or texts):
            raise RegardError("--column is for files that are tables; name them with --input")
        if "-" in files and len(files) > 1:
            raise RegardError("standard input ('-') cannot be one of several inputs; give it alone")
        self._texts, self._stream = texts, stream
        self._files = [] if stream else [open_file(name) for name in files]
        self._column = column
        if column is not None:
            self._tables = [detect_format(one, ColumnRequest(column, column))[0] for one in self._files]

    @property
    def live(self) -> bool:
        """Whether a person is typing."""
        return self._stream and sys.stdin.isatty()

    def windows(self) -> Windows:
        """The lines, as many together as are there and are worth waiting for."""
        if self._stream:
            return _arriving(decompress(sys.stdin.buffer, STANDARD_INPUT))
        if self._texts:
            return _grown(Line(f"text {n}", text.strip()) for n, text in enumerate(self._texts, 1))
        return _grown(line for number in range(len(self._files)) for line in self._read(number))

    def count(self) -> int | None:
        """How many lines there are, where they can be counted; quickly, by their line ends."""
        if self._stream:
            return None
        try:
            return len(self._texts) + sum(map(_counted, self._files))
        except (CorpusError, OSError, EOFError, ValueError):
            return None  # reading will say what is wrong, and where

    def _read(self, number: int) -> Iterator[Line]:
        one = self._files[number]
        if self._column is None:
            for at, raw in read_lines(one):
                yield _line(one.name, at, raw)
            return
        for row in self._tables[number].rows(read_lines(one)):
            if row.problem not in ("", "empty line", "empty side"):
                raise CorpusError(f"{one.name}:{row.line}: {row.detail}; mend the line")
            yield Line(f"{one.name}:{row.line}", row.source)


def _grown(lines: Iterable[Line]) -> Windows:
    """Windows of few lines at first, then of more."""
    source, count = iter(lines), FIRST_LINES
    while window := list(islice(source, count)):
        yield window
        count = min(2 * count, MOST_LINES)


def _arriving(stream: Any) -> Windows:
    """Whole lines as soon as they have come."""
    number, count, rest = 0, FIRST_LINES, bytearray()
    while True:
        chunk = _chunk(stream, number)
        if not number and not rest:
            chunk = chunk.removeprefix(UTF8_BOM)
        rest += chunk
        if len(rest) > MAX_LINE_BYTES and b"\n" not in chunk:
            _line(STANDARD_INPUT, number + 1, bytes(rest))  # says that it is too long
        whole = len(rest) if not chunk else rest.rfind(b"\n") + 1
        if whole:
            ready = bytes(rest[:whole]).removesuffix(b"\n").split(b"\n")
            del rest[:whole]
            while ready:
                yield [_line(STANDARD_INPUT, number + n, raw) for n, raw in enumerate(ready[:count], 1)]
                number, ready, count = number + len(ready[:count]), ready[count:], min(2 * count, MOST_LINES)
        if not chunk:
            return


def _chunk(stream: Any, number: int) -> bytes:
    """What is there now, after so many lines; nothing at the end."""
    with report_damage(STANDARD_INPUT, lambda: number):
        return stream.read1(BUFFER_BYTES)


def _line(name: str, number: int, raw: bytes) -> Line:
    text = decode_line(number, raw)
    if isinstance(text, ParsedRow):
        raise CorpusError(f"{name}:{number}: {text.detail}; mend the line")
    return Line(f"{name}:{number}", text.strip())


def _counted(one: File) -> int:
    count, last = 0, b"\n"
    with one.open() as stored, decompress(stored, one.name) as stream:
        while block := stream.read1(BUFFER_BYTES):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")
