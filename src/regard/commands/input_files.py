"""Input lines from files and standard input, in any encoding and table format."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from regard.commands.inputs import InputLine, Inputs, TableStyle, Windows, growing_windows
from regard.errors import RegardError
from regard.pipeline import FIRST_LINES, MOST_LINES
from regard.text.corpus import detect_format, is_table_name
from regard.text.files import (
    BUFFER_BYTES,
    MAX_LINE_BYTES,
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


class FileInputs(Inputs):
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
        self._files = [open_file(name) for name in files]
        self._formats: list[RowFormat] = []
        self.notes = notes = list[str]()
        tables = [is_table_name(file.name) or column is not None for file in self._files]
        if any(tables) and not all(tables):
            raise RegardError("give tables or files of lines, not both; run them separately")
        only = column is None
        request = ReadRequest(column, column, header, encoding, sheet, source_only=only)
        for file in self._files:
            if any(tables):
                found = detect_format(file, request)
                self._formats.append(found.format)
                notes += [f"{file.name}: {found.description}"] if found.notable else []
            elif guessed := detect_encoding(file, encoding):
                notes.append(f"{file.name}: {guessed}")
        self.table = self._table_style()

    def _table_style(self) -> TableStyle | None:
        """The style of the first table; None if the inputs are not tables."""
        if not self._formats or not isinstance(found := self._formats[0], TableFormat):
            return None
        with self._files[0].open() as stored:
            bom = stored.peek(3).startswith(UTF8_BOM) or self._files[0].encoding != UTF8
        columns = found.columns
        header = columns.first[columns.source] or "source" if columns.header else None
        delimiter = found.delimiter if isinstance(found, CsvFormat) else "\t"
        return TableStyle(delimiter, header, bom)

    def windows(self) -> Windows:
        """The lines of all files, in growing windows."""
        return growing_windows(
            line for number in range(len(self._files)) for line in self._read(number)
        )

    def count(self) -> int | None:
        """The number of lines, from a quick count of line ends; None if it cannot be known."""
        if any(isinstance(one, WorkbookFormat) for one in self._formats):
            return None
        try:
            return sum(map(_count_lines, self._files))
        except (CorpusError, OSError, EOFError, ValueError):
            return None  # reading the file will raise with the reason

    def _read(self, number: int) -> Iterator[InputLine]:
        one = self._files[number]
        if not self._formats:
            for at, raw in read_lines(one):
                yield _decode_line(one.name, at, raw)
            return
        empty: list[InputLine] = []  # empty lines at the end of a table are not answered
        for row in self._formats[number].rows(one):
            if row.problem not in ("", "empty line", "empty side"):
                raise CorpusError(f"{one.name}:{row.line}: {row.detail}; fix the line")
            line = InputLine(f"{one.name}:{row.line}", row.source)
            if row.problem == "empty line":
                empty.append(line)
                continue
            yield from empty
            empty.clear()
            yield line


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
            _decode_line(STANDARD_INPUT, number + 1, bytes(rest))  # raises: the line is too long
        complete = len(rest) if not chunk else rest.rfind(b"\n") + 1
        if complete:
            ready = bytes(rest[:complete]).removesuffix(b"\n").split(b"\n")
            del rest[:complete]
            while ready:
                window = ready[:count]
                yield [
                    _decode_line(STANDARD_INPUT, number + n, raw) for n, raw in enumerate(window, 1)
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


def _decode_line(name: str, number: int, raw: bytes) -> InputLine:
    text = decode_line(number, raw)
    if isinstance(text, ParsedRow):
        encoding = ", or name the --encoding" if "not valid UTF-8" in text.detail else ""
        raise CorpusError(f"{name}:{number}: {text.detail}; fix the line{encoding}")
    return InputLine(f"{name}:{number}", text.strip())


def _count_lines(one: File) -> int:
    count, last = 0, b"\n"
    with one.open() as stored, open_text(stored, one) as stream:
        while block := stream.read1(BUFFER_BYTES):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")
