"""File formats of rows and columns: tab-separated text, CSV, workbooks, Parquet and Arrow."""

from __future__ import annotations

import csv
import re
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from regard.text.columnar import columnar_rows
from regard.text.files import File, read_lines
from regard.text.row_format import (
    ColumnLayout,
    Line,
    ParsedRow,
    ReadRequest,
    RowFormat,
    TableRow,
    bad_row,
    decode_line,
    make_row,
    modal_width,
    resolve_columns,
)
from regard.text.workbooks import Cell, workbook_rows

DELIMITERS = ",;\t|"
SEPARATOR_LINE = re.compile(rb"sep=(.)", re.DOTALL)  # the first line of some CSV files of Excel


class TableFormat(RowFormat):
    """A format of rows and columns."""

    columns: ColumnLayout

    @abstractmethod
    def table_rows(self, file: File) -> Iterator[TableRow]:
        """All rows as cells, with the header but without blank lines above it."""

    def rows(self, file: File) -> Iterator[ParsedRow]:
        """The pairs of the rows below the header."""
        rows, columns = self.table_rows(file), self.columns
        if columns.header:
            next(rows, None)
        first, second, width = columns.source, columns.target, columns.width
        plain = columns.tags is None
        for number, raw, cells in rows:
            if isinstance(cells, ParsedRow):
                yield cells
                continue
            if plain and len(cells) == width:  # nearly all rows: half the time of row_from_cells
                source, target = cells[first].strip(), cells[second].strip()
                if source and target:
                    yield ParsedRow(number, raw, source, target)
                    continue
            yield row_from_cells(number, raw, cells, columns)


class TsvFormat(TableFormat):
    """Tab-separated columns; quotes have no special meaning."""

    def __init__(self, columns: ColumnLayout) -> None:
        self.columns = columns
        self.description = f"tab-separated, {columns.description}"

    @classmethod
    def from_head(cls, name: str, head: Sequence[Line], request: ReadRequest) -> TableFormat:
        """Configure this format for a file that starts with these lines."""
        if is_quoted_tsv(head):
            return CsvFormat.with_delimiter("\t", name, head, request)
        rows = [line.decode(errors="replace").split("\t") for _, line in head if line.strip()]
        return cls(resolve_columns(name, "tab-separated", rows, request))

    def table_rows(self, file: File) -> Iterator[TableRow]:
        """All rows as cells."""
        lines = skip_blank(read_lines(file)) if self.columns.header else read_lines(file)
        for number, raw in lines:
            text = decode_line(number, raw)
            yield number, raw, text if isinstance(text, ParsedRow) else text.split("\t")


class CsvFormat(TableFormat):
    """CSV (RFC 4180): a quoted field may contain delimiters, doubled quotes and line ends."""

    def __init__(self, delimiter: str, columns: ColumnLayout, *, skip_spaces: bool = False) -> None:
        self.delimiter = delimiter
        self.columns = columns
        self.skip_spaces = skip_spaces
        kind = (
            "quoted tab-separated"
            if delimiter == "\t"
            else f"CSV with {delimiter!r} between fields"
        )
        self.description = f"{kind}, {columns.description}"

    @classmethod
    def from_head(cls, name: str, head: Sequence[Line], request: ReadRequest) -> CsvFormat:
        """Configure this format for a file that starts with these lines."""
        if named := SEPARATOR_LINE.fullmatch(head[0][1].strip(b'"')):
            return cls.with_delimiter(named[1].decode(errors="replace"), name, head[1:], request)
        return cls.with_delimiter(likely_delimiter(head)[0], name, head, request)

    @classmethod
    def with_delimiter(
        cls, delimiter: str, name: str, head: Sequence[Line], request: ReadRequest
    ) -> CsvFormat:
        """Configure CSV with a known delimiter."""
        text = [line.decode(errors="replace") + "\n" for _, line in head]
        skip_spaces = any(f'{delimiter} "' in line for line in text)
        rows = parse_csv(text, delimiter, skip_spaces=skip_spaces)
        columns = resolve_columns(name, "CSV", rows, request)
        return cls(delimiter, columns, skip_spaces=skip_spaces)

    def table_rows(self, file: File) -> Iterator[TableRow]:
        """All rows as cells."""
        lines = skip_blank(read_lines(file)) if self.columns.header else read_lines(file)
        taken: list[Line] = []  # the lines of the current row
        again = deque[Line]()  # lines after a misplaced quote, to be parsed again

        def feed() -> Iterator[str]:
            while line := again.popleft() if again else next(lines, None):
                if line[0] == 1 and SEPARATOR_LINE.fullmatch(line[1].strip(b'"')):
                    continue
                taken.append(line)
                yield line[1].decode(errors="replace") + "\n"

        def open_reader() -> Any:
            return csv.reader(
                feed(), delimiter=self.delimiter, strict=True, skipinitialspace=self.skip_spaces
            )

        reader = open_reader()
        while True:
            taken.clear()
            try:
                cells: list[str] = next(reader)
            except StopIteration:
                return
            except csv.Error as error:  # report the first line only, parse the others again
                number, raw = taken[0]
                problem = bad_row(number, raw, "broken CSV", _explain_csv_error(error))
                yield number, raw, problem
                again.extendleft(reversed(taken[1:]))
                reader = open_reader()
                continue
            number, raw = taken[0][0], b"\n".join(line for _, line in taken)
            text = decode_line(number, raw)
            yield number, raw, text if isinstance(text, ParsedRow) else cells


class WorkbookFormat(TableFormat):
    """A sheet of a workbook (.xlsx, .xls, .ods), Parquet or Arrow; needs an extra."""

    def __init__(self, kind: str, sheet: str | None, columns: ColumnLayout) -> None:
        self.kind = kind
        self.sheet = sheet
        self.columns = columns
        named = f" {sheet!r}" if sheet else ""
        self.description = f"{kind}{named}, {columns.description}"

    @classmethod
    def from_file(cls, file: File, kind: str, request: ReadRequest, most: int) -> WorkbookFormat:
        """Configure this format for a file, from its first rows."""
        sheet = None
        if kind == "sheet":
            sheet, rows = workbook_rows(file, request.sheet)
        else:
            rows = columnar_rows(file)
        head = [cells for _, cells in zip(range(most), (cells for _, cells in rows), strict=False)]
        if kind != "sheet":
            request = replace(request, header=True)  # the column names
        columns = resolve_columns(file.name, "a table", head, request)
        return cls(kind, sheet, columns)

    def table_rows(self, file: File) -> Iterator[TableRow]:
        """All rows as cells. A date in a used column is a problem: it was probably text."""
        rows = workbook_rows(file, self.sheet)[1] if self.kind == "sheet" else columnar_rows(file)
        tags = () if self.columns.tags is None else (("source", self.columns.tags),)
        used = (("source", self.columns.source), *tags, ("target", self.columns.target))
        for number, cells in rows:
            raw = "\t".join(cells).encode(errors="replace")
            detail = ""
            for side, index in used:
                cell = cells[index] if index < len(cells) else ""
                if isinstance(cell, Cell):
                    what = f"{cell.kind} ({cell}), not text"
                    detail = f"the {side} is {what}; format the column as text"
            problem = bad_row(number, raw, "not text", detail)
            yield number, raw, problem if detail else cells


def row_from_cells(
    number: int, raw: bytes, cells: Sequence[str], columns: ColumnLayout
) -> ParsedRow:
    """The pair in the cells of a table row."""
    if len(cells) <= columns.last:
        if not raw.strip():
            return bad_row(number, raw, "empty line", "the line is empty")
        index = columns.last
        side = "source" if index in (columns.source, columns.tags) else "target"
        detail = f"{_count_columns(len(cells))} only, but the {side} is column {index + 1}"
        return bad_row(number, raw, "missing column", detail)
    if len(cells) > columns.width:
        detail = f"{_count_columns(len(cells))} where the file has {columns.width}"
        return bad_row(number, raw, "extra column", f"{detail}; is a delimiter inside the text?")
    row = make_row(number, raw, columns.source_text(cells), cells[columns.target])
    if row.problem and not any(cell.strip() for cell in cells):
        return bad_row(number, raw, "empty line", "the line is empty")
    return row


def likely_delimiter(head: Sequence[Line]) -> tuple[str, list[list[str]]]:
    """The delimiter that splits most lines into the same number (> 1) of columns, and the rows."""
    text = [line.decode(errors="replace") + "\n" for _, line in head]
    tables = {delimiter: parse_csv(text, delimiter) for delimiter in DELIMITERS}

    def agreement(delimiter: str) -> tuple[bool, float]:
        rows = tables[delimiter]
        width = modal_width(rows)
        return width > 1, sum(len(row) == width for row in rows) / len(rows)

    best = max(DELIMITERS, key=agreement)
    return best, tables[best]


def parse_csv(text: Sequence[str], delimiter: str, *, skip_spaces: bool = False) -> list[list[str]]:
    """The rows of the first lines, without broken ones; the last may be incomplete."""
    rows, reader = [], csv.reader(text, delimiter=delimiter, skipinitialspace=skip_spaces)
    while True:
        try:
            rows.append(next(reader))
        except StopIteration:
            return [row for row in rows if any(cell.strip() for cell in row)] or [[""]]
        except csv.Error:
            continue


def is_quoted_tsv(head: Sequence[Line]) -> bool:
    """Whether quotes delimit fields: all quotes are well placed, and some need it (a doubled quote,
    or a tab or line end inside a field)."""
    text = "\n".join(line.decode(errors="replace") for _, line in head)
    if '"' not in text:
        return False
    fields = re.findall(r'(?:^|(?<=[\t\n]))"(?:[^"]|"")*"(?=[\t\n]|$)', text)
    if sum(field.count('"') for field in fields) != text.count('"'):
        return False
    return any(mark in field[1:-1] for field in fields for mark in ('""', "\t", "\n"))


def skip_blank(lines: Iterator[Line]) -> Iterator[Line]:
    """The lines from the first one that is not blank."""
    started = False
    for line in lines:
        started = started or bool(line[1].strip())
        if started:
            yield line


def _count_columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


def _explain_csv_error(error: csv.Error) -> str:
    """The cause of a parse error; an endless field usually means that a quote is not closed."""
    if "field larger" in str(error) or "end of data" in str(error):
        return f"a quoted field is not closed ({error})"
    return f"a quote is misplaced ({error})"
