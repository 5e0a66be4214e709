"""Input lines from files and standard input, in any encoding and table format."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from regard.commands.inputs import InputLine, Inputs, StoredInputs, TableStyle, Windows
from regard.errors import RegardError
from regard.pipeline import FIRST_LINES, MOST_LINES
from regard.text.corpus import detect_format, is_table_name
from regard.text.file_ranges import LineRange, place_in
from regard.text.files import (
    BUFFER_BYTES,
    MAX_LINE_BYTES,
    READ_ERRORS,
    UTF8,
    UTF8_BOM,
    CorpusError,
    File,
    Transcoder,
    decompress,
    open_file,
    open_text,
    read_lines,
    report_damage,
)
from regard.text.row_format import ParsedRow, ReadRequest, RowFormat, decode_line
from regard.text.table_formats import CsvFormat, TableFormat, WorkbookFormat
from regard.text.text_encoding import BOMS, check_encoding, detect_encoding

STANDARD_INPUT = "standard input"
Item = TypeVar("Item")


class StreamInputs(Inputs):
    """Lines of standard input, in its encoding or that of its byte-order mark."""

    def __init__(self, encoding: str | None = None) -> None:
        self._encoding = None if encoding is None else check_encoding(encoding)
        self.interactive = sys.stdin.isatty()

    def windows(self) -> Windows:
        """The lines that have arrived so far, again and again."""
        return _stream_windows(_open_stream(self._encoding))

    def count(self) -> None:
        """Unknown before the end."""
        return


class FileInputs(StoredInputs):
    """Lines of files; table files, and all files if `column` is given, are read by rows."""

    def __init__(
        self,
        files: Sequence[str],
        column: str | int | None = None,
        *,
        header: bool | None = None,
        encoding: str | None = None,
        sheet: str | None = None,
    ) -> None:
        if encoding is not None:
            check_encoding(encoding)
        self.files = [open_file(name) for name in files]
        self.formats: list[RowFormat] = []
        self.notes = notes = list[str]()
        tables = [is_table_name(file.name) or column is not None for file in self.files]
        if any(tables) and not all(tables):
            raise RegardError("give tables or files of lines, not both; run them separately")
        only = column is None
        request = ReadRequest(column, column, header, encoding, sheet, source_only=only)
        for file in self.files:
            if any(tables):
                found = detect_format(file, request)
                self.formats.append(found.format)
                notes += [f"{file.name}: {found.description}"] if found.notable else []
            elif guessed := detect_encoding(file, encoding):
                notes.append(f"{file.name}: {guessed}")
        self.table = self._table_style()

    def _table_style(self) -> TableStyle | None:
        """The style of the first table; None if the inputs are not tables."""
        if not self.formats or not isinstance(found := self.formats[0], TableFormat):
            return None
        with self.files[0].open() as stored:
            bom = stored.peek(3).startswith(UTF8_BOM) or self.files[0].encoding != UTF8
        columns = found.columns
        header = columns.first[columns.source] or "source" if columns.header else None
        delimiter = found.delimiter if isinstance(found, CsvFormat) else "\t"
        return TableStyle(delimiter, header, bom)

    def lines(self) -> Iterator[InputLine]:
        """The lines of all files."""
        for file, format in self.sources():
            yield from read_input(file, format)

    def sources(self) -> list[tuple[File, RowFormat | None]]:
        """The files with their formats; None for a file of lines."""
        formats: Sequence[RowFormat | None] = self.formats or [None] * len(self.files)
        return list(zip(self.files, formats, strict=True))

    def count(self) -> int | None:
        """The number of lines, from a quick count of line ends; None if it cannot be known."""
        if any(isinstance(one, WorkbookFormat) for one in self.formats):
            return None
        try:
            return sum(map(_count_lines, self.files))
        except (CorpusError, *READ_ERRORS):
            return None  # reading the file will raise with the reason


def read_input(
    file: File, format: RowFormat | None, rest: File | None = None
) -> Iterator[InputLine]:
    """The input lines of a file, or of a part of a file whose `rest` follows it.

    Without a format, every line is a source.
    """
    if format is None:
        for at, raw in _own(file, read_lines(file)):
            yield _decode_line(place_in(file, at), raw)
        return
    empty: list[InputLine] = []  # empty lines at the end of a table are not answered
    for row in _own(file, format.rows(file)):
        place = place_in(file, row.line)
        if row.problem not in ("", "empty line", "empty side"):
            raise CorpusError(f"{place}: {row.detail}; fix the line")
        line = InputLine(place, row.source)
        if row.problem == "empty line":
            empty.append(line)
            continue
        yield from empty
        empty.clear()
        yield line
    if empty and rest is not None:
        later = _own(rest, format.rows(rest))
        if any(row.problem != "empty line" for row in later):
            yield from empty


def _own(file: File, items: Iterator[Item]) -> Iterator[Item]:
    """The lines or rows of a file, without the line end before a range of lines."""
    if isinstance(file, LineRange) and not file.begins_file:
        next(items, None)
    return items


def _open_stream(encoding: str | None) -> Any:
    """Standard input as UTF-8: in the given encoding, or in the one of its byte-order mark."""
    stream = decompress(sys.stdin.buffer, STANDARD_INPUT)
    if encoding is None:
        first = stream.peek(4)[:4]
        encoding = next((name for bom, name in BOMS.items() if first.startswith(bom)), UTF8)
    if encoding == UTF8:
        return stream
    return io.BufferedReader(Transcoder(stream, encoding), BUFFER_BYTES)


def _stream_windows(stream: Any) -> Windows:
    """Windows of the complete lines that have arrived so far."""
    number, count = 0, FIRST_LINES
    rest = bytearray()
    while True:
        chunk = _read_chunk(stream, number)
        if not number and not rest:
            chunk = chunk.removeprefix(UTF8_BOM)
        rest += chunk
        if len(rest) > MAX_LINE_BYTES and b"\n" not in chunk:
            _decode_line(
                f"{STANDARD_INPUT}:{number + 1}", bytes(rest)
            )  # raises: the line is too long
        complete = len(rest) if not chunk else rest.rfind(b"\n") + 1
        if complete:
            ready = bytes(rest[:complete]).removesuffix(b"\n").split(b"\n")
            del rest[:complete]
            while ready:
                window = ready[:count]
                yield [
                    _decode_line(f"{STANDARD_INPUT}:{number + n}", raw)
                    for n, raw in enumerate(window, 1)
                ]
                ready = ready[count:]
                number += len(window)
                count = min(2 * count, MOST_LINES)
        if not chunk:
            return


def _read_chunk(stream: Any, number: int) -> bytes:
    """The bytes that are available, after `number` lines; empty at the end of the stream."""
    with report_damage(STANDARD_INPUT, lambda: number):
        return stream.read1(BUFFER_BYTES)


def _decode_line(place: object, raw: bytes) -> InputLine:
    text = decode_line(0, raw)
    if isinstance(text, ParsedRow):
        encoding = ", or name the --encoding" if "not valid UTF-8" in text.detail else ""
        raise CorpusError(f"{place}: {text.detail}; fix the line{encoding}")
    return InputLine(place, text.strip())


def _count_lines(one: File) -> int:
    count, last = 0, b"\n"
    with one.open() as stored, open_text(stored, one) as stream:
        while block := stream.read1(BUFFER_BYTES):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")
