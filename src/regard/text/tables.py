"""Tables of pairs: columns between tabs, and CSV."""

from __future__ import annotations

import csv
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from regard.text.column_choice import Columns, Wanted, settle
from regard.text.row_format import Format, Line, Row, decoded, filled

DELIMITERS = ",;\t|"


class Tabbed(Format):
    """Columns between tabs; quotes are quotes."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.said = f"tab-separated, {columns.said}"

    @classmethod
    def settled(cls, name: str, head: Sequence[Line], wanted: Wanted) -> Tabbed:
        rows = [line.decode(errors="replace").split("\t") for _, line in head if line.strip()]
        return cls(settle(name, "tab-separated", rows[0], usual_width(rows), wanted))

    def rows(self, lines: Iterator[Line]) -> Iterator[Row]:
        if self.columns.header:
            next((raw for _, raw in lines if raw.strip()), None)  # the names stand in the first line that is not blank
        for number, raw in lines:
            text = decoded(number, raw)
            yield text if isinstance(text, Row) else picked(number, raw, text.split("\t"), self.columns)


class Quoted(Format):
    """CSV (RFC 4180): fields may be quoted, and then hold delimiters, doubled quotes and line ends."""

    def __init__(self, delimiter: str, columns: Columns) -> None:
        self.delimiter = delimiter
        self.columns = columns
        self.said = f"CSV with {delimiter!r} between fields, {columns.said}"

    @classmethod
    def settled(cls, name: str, head: Sequence[Line], wanted: Wanted) -> Quoted:
        delimiter, rows = likely_delimiter(head)
        return cls(delimiter, settle(name, "CSV", rows[0], usual_width(rows), wanted))

    def rows(self, lines: Iterator[Line]) -> Iterator[Row]:
        taken: list[Line] = []
        again = deque[Line]()  # what a quote that should not be there took with it

        def fed() -> Iterator[str]:
            while line := again.popleft() if again else next(lines, None):
                taken.append(line)
                yield line[1].decode(errors="replace") + "\n"

        reader = csv.reader(fed(), delimiter=self.delimiter, strict=True)
        header = self.columns.header
        while True:
            taken.clear()
            try:
                cells: list[str] = next(reader)
            except StopIteration:
                return
            except csv.Error as error:  # one line is to blame; those after it are read anew
                yield Row(taken[0][0], taken[0][1], problem="broken CSV", detail=_csv_error(error))
                again.extendleft(reversed(taken[1:]))
                reader = csv.reader(fed(), delimiter=self.delimiter, strict=True)
                continue
            if header:  # up to the first line that is not blank, where the names stand
                header = not _raw(taken).strip()
                continue
            text = decoded(taken[0][0], _raw(taken))
            yield text if isinstance(text, Row) else picked(taken[0][0], _raw(taken), cells, self.columns)


def picked(number: int, raw: bytes, cells: Sequence[str], columns: Columns) -> Row:
    """The pair in these cells."""
    if len(cells) <= max(columns.source, columns.target):
        if not raw.strip():
            return Row(number, raw, problem="empty line", detail="the line is empty")
        side, place = max(("source", columns.source), ("target", columns.target), key=lambda side: side[1])
        detail = f"{_columns(len(cells))} only, but the {side} is column {place + 1}"
        return Row(number, raw, problem="missing column", detail=detail)
    if len(cells) > columns.width:
        detail = f"{_columns(len(cells))} where the file has {columns.width}; is a delimiter inside the text?"
        return Row(number, raw, problem="extra column", detail=detail)
    return filled(number, raw, cells[columns.source], cells[columns.target])


def usual_width(rows: Sequence[Sequence[str]]) -> int:
    """How many columns most rows have."""
    return Counter(map(len, rows)).most_common(1)[0][0]


def likely_delimiter(head: Sequence[Line]) -> tuple[str, list[list[str]]]:
    """The delimiter by which most lines fall into the same number of columns, two at least; and the rows."""
    text = [line.decode(errors="replace") + "\n" for _, line in head]
    tables = {delimiter: _parsed(text, delimiter) for delimiter in DELIMITERS}

    def agreement(delimiter: str) -> tuple[bool, float]:
        rows = tables[delimiter]
        width = usual_width(rows)
        return width > 1, sum(len(row) == width for row in rows) / len(rows)

    best = max(DELIMITERS, key=agreement)
    return best, tables[best]


def _parsed(text: Sequence[str], delimiter: str) -> list[list[str]]:
    """The rows of the first lines; broken ones are left out, and the last may end early."""
    rows, reader = [], csv.reader(text, delimiter=delimiter)
    while True:
        try:
            rows.append(next(reader))
        except StopIteration:
            return [row for row in rows if row] or [[""]]
        except csv.Error:
            continue


def _raw(taken: Sequence[Line]) -> bytes:
    return b"\n".join(line for _, line in taken)


def _columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


def _csv_error(error: csv.Error) -> str:
    """What csv says in a few words; a field that never ends is most often a quote that never closes."""
    if "field larger" in str(error) or "end of data" in str(error):
        return f"a quoted field has no end ({error})"
    return f"a quote is out of place ({error})"
