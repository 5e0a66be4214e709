"""File formats of pairs: tab-separated columns, CSV, and JSON lines."""

from __future__ import annotations

import csv
import json
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from regard.errors import suggestion
from regard.text.files import CorpusError
from regard.text.row_format import (
    SOURCE_NAMES,
    TARGET_NAMES,
    ColumnLayout,
    ColumnRequest,
    Line,
    ParsedRow,
    RowFormat,
    decode_line,
    make_row,
    resolve_columns,
)

DELIMITERS = ",;\t|"


class TsvFormat(RowFormat):
    """Tab-separated columns; quotes have no special meaning."""

    def __init__(self, columns: ColumnLayout) -> None:
        self.columns = columns
        self.description = f"tab-separated, {columns.description}"

    @classmethod
    def from_head(cls, name: str, head: Sequence[Line], request: ColumnRequest) -> TsvFormat:
        rows = [line.decode(errors="replace").split("\t") for _, line in head if line.strip()]
        return cls(resolve_columns(name, "tab-separated", rows[0], modal_width(rows), request))

    def rows(self, lines: Iterator[Line]) -> Iterator[ParsedRow]:
        if self.columns.header:
            next((raw for _, raw in lines if raw.strip()), None)  # the first line that is not blank
        for number, raw in lines:
            text = decode_line(number, raw)
            if isinstance(text, ParsedRow):
                yield text
            else:
                yield row_from_cells(number, raw, text.split("\t"), self.columns)


class CsvFormat(RowFormat):
    """CSV (RFC 4180): a quoted field may contain delimiters, doubled quotes and line ends."""

    def __init__(self, delimiter: str, columns: ColumnLayout) -> None:
        self.delimiter = delimiter
        self.columns = columns
        self.description = f"CSV with {delimiter!r} between fields, {columns.description}"

    @classmethod
    def from_head(cls, name: str, head: Sequence[Line], request: ColumnRequest) -> CsvFormat:
        delimiter, rows = likely_delimiter(head)
        return cls(delimiter, resolve_columns(name, "CSV", rows[0], modal_width(rows), request))

    def rows(self, lines: Iterator[Line]) -> Iterator[ParsedRow]:
        taken: list[Line] = []  # the lines of the current row
        again = deque[Line]()  # lines after a misplaced quote, to be parsed again

        def feed() -> Iterator[str]:
            while line := again.popleft() if again else next(lines, None):
                taken.append(line)
                yield line[1].decode(errors="replace") + "\n"

        reader = csv.reader(feed(), delimiter=self.delimiter, strict=True)
        header = self.columns.header
        while True:
            taken.clear()
            try:
                cells: list[str] = next(reader)
            except StopIteration:
                return
            except csv.Error as error:  # report the first line only, parse the others again
                detail = _explain_csv_error(error)
                yield ParsedRow(taken[0][0], taken[0][1], problem="broken CSV", detail=detail)
                again.extendleft(reversed(taken[1:]))
                reader = csv.reader(feed(), delimiter=self.delimiter, strict=True)
                continue
            raw = b"\n".join(line for _, line in taken)
            if header:  # the header is the first line that is not blank
                header = not raw.strip()
                continue
            text = decode_line(taken[0][0], raw)
            if isinstance(text, ParsedRow):
                yield text
            else:
                yield row_from_cells(taken[0][0], raw, cells, self.columns)


class JsonLinesFormat(RowFormat):
    """One JSON object or array per line; a dot selects a nested value: `translation.en`."""

    def __init__(self, source: str | int, target: str | int) -> None:
        self.source = source
        self.target = target
        columns = f"source is {_describe(source)} and target {_describe(target)}"
        self.description = f"JSON lines, {columns}"

    @classmethod
    def from_head(cls, name: str, head: Sequence[Line], request: ColumnRequest) -> JsonLinesFormat:
        if request.columns:
            return cls(*request.columns)
        try:
            first = json.loads(head[0][1])
        except (ValueError, RecursionError):
            if head[0][1].strip() in (b"[", b"{") or len(head) == 1:
                raise CorpusError(
                    f"{name} is not JSON lines; write one object per line (jq -c)"
                ) from None
            return cls("source", "target")  # only the first line is bad; the reader reports it
        if isinstance(first, list) and first and not isinstance(first[0], str):
            raise CorpusError(f"{name} is one JSON array; write one pair per line (jq -c '.[]')")
        if isinstance(first, list):
            return cls(1, 2)
        keys = list(first) if isinstance(first, dict) else []
        source = next((key for key in keys if key.casefold() in SOURCE_NAMES), None)
        target = next((key for key in keys if key.casefold() in TARGET_NAMES), None)
        if source is not None and target is not None:
            return cls(source, target)
        if len(keys) == 2 and all(isinstance(value, str) for value in first.values()):
            return cls(*keys)
        listed = ", ".join(map(repr, keys)) or "no columns"
        raise CorpusError(f"{name}: which of {listed} are source and target? Name both")

    def rows(self, lines: Iterator[Line]) -> Iterator[ParsedRow]:
        for number, raw in lines:
            text = decode_line(number, raw)
            yield text if isinstance(text, ParsedRow) else self._parse(number, raw, text)

    def _parse(self, number: int, raw: bytes, text: str) -> ParsedRow:
        if not text.strip():
            return _problem(number, raw, "empty line", "the line is empty")
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            return _problem(number, raw, "broken JSON", f"the line is not valid JSON: {error}")
        values = []
        for side, column in (("source", self.source), ("target", self.target)):
            value, missing = _select(record, column)
            if missing:
                return _problem(number, raw, "missing column", f"no {side}: {missing}")
            if not isinstance(value, str):
                detail = f"the {side} is {json.dumps(value)[:40]}, not a string"
                return _problem(number, raw, "not text", detail)
            if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
                detail = f"the {side} has half a surrogate pair"
                return _problem(number, raw, "broken UTF-8", detail)
            values.append(value)
        return make_row(number, raw, *values)


def row_from_cells(
    number: int, raw: bytes, cells: Sequence[str], columns: ColumnLayout
) -> ParsedRow:
    """The pair in the cells of a table row."""
    if len(cells) <= max(columns.source, columns.target):
        if not raw.strip():
            return _problem(number, raw, "empty line", "the line is empty")
        side = "source" if columns.source >= columns.target else "target"
        index = max(columns.source, columns.target)
        detail = f"{_count_columns(len(cells))} only, but the {side} is column {index + 1}"
        return _problem(number, raw, "missing column", detail)
    if len(cells) > columns.width:
        detail = f"{_count_columns(len(cells))} where the file has {columns.width}"
        return _problem(number, raw, "extra column", f"{detail}; is a delimiter inside the text?")
    return make_row(number, raw, cells[columns.source], cells[columns.target])


def modal_width(rows: Sequence[Sequence[str]]) -> int:
    """The most common number of columns."""
    return Counter(map(len, rows)).most_common(1)[0][0]


def likely_delimiter(head: Sequence[Line]) -> tuple[str, list[list[str]]]:
    """The delimiter that splits most lines into the same number (> 1) of columns, and the rows."""
    text = [line.decode(errors="replace") + "\n" for _, line in head]
    tables = {delimiter: _parse_csv(text, delimiter) for delimiter in DELIMITERS}

    def agreement(delimiter: str) -> tuple[bool, float]:
        rows = tables[delimiter]
        width = modal_width(rows)
        return width > 1, sum(len(row) == width for row in rows) / len(rows)

    best = max(DELIMITERS, key=agreement)
    return best, tables[best]


def _parse_csv(text: Sequence[str], delimiter: str) -> list[list[str]]:
    """The rows of the first lines, without broken ones; the last may be incomplete."""
    rows, reader = [], csv.reader(text, delimiter=delimiter)
    while True:
        try:
            rows.append(next(reader))
        except StopIteration:
            return [row for row in rows if row] or [[""]]
        except csv.Error:
            continue


def _select(record: Any, column: str | int) -> tuple[Any, str]:
    """The value at an index (from 1) or a dotted name, or the reason why it is missing."""
    if isinstance(column, int):
        if not isinstance(record, list):
            return None, f"column {column} was requested, but the line is not an array"
        if 0 < column <= len(record):
            return record[column - 1], ""
        return None, f"column {column} was requested from an array of {len(record)}"
    if isinstance(record, dict) and column in record:
        return record[column], ""
    value = record
    for name in column.split("."):
        if not isinstance(value, dict):
            return None, f"{name!r} was requested, but its parent is not an object"
        if name not in value:
            return None, f"there is no {name!r}; {suggestion(name, value)}"
        value = value[name]
    return value, ""


def _problem(number: int, raw: bytes, problem: str, detail: str) -> ParsedRow:
    return ParsedRow(number, raw, problem=problem, detail=detail)


def _describe(column: str | int) -> str:
    return repr(column) if isinstance(column, str) else f"value {column}"


def _count_columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


def _explain_csv_error(error: csv.Error) -> str:
    """The cause of a parse error; an endless field usually means that a quote is not closed."""
    if "field larger" in str(error) or "end of data" in str(error):
        return f"a quoted field is not closed ({error})"
    return f"a quote is misplaced ({error})"
