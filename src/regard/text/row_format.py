"""Rows and columns of a corpus file: one parsed row, and which columns hold source and target.

A row carries its problem, if it has one; the reader decides whether to raise or to count it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.errors import suggestion
from regard.text.files import MAX_LINE_BYTES, CorpusError

SOURCE_NAMES = ("source", "src", "input", "from")
TARGET_NAMES = ("target", "tgt", "output", "to")
Line = tuple[int, bytes]


class ParsedRow(NamedTuple):
    """A pair with its line number and raw bytes, or a `problem` (its category) with a `detail`."""

    line: int
    raw: bytes
    source: str = ""
    target: str = ""
    problem: str = ""
    detail: str = ""


class RowFormat(ABC):
    """A file format with one pair per row, configured for one file."""

    description: str

    @classmethod
    @abstractmethod
    def from_head(cls, name: str, head: Sequence[Line], request: ColumnRequest) -> RowFormat:
        """Configure this format for a file that starts with these lines."""

    @abstractmethod
    def rows(self, lines: Iterator[Line]) -> Iterator[ParsedRow]:
        """Parse all lines of a file; bad ones become rows with a problem."""


@dataclass(frozen=True)
class ColumnRequest:
    """Requested columns, by name or by number from 1, and whether the first line is a header.

    None means: columns named `source` and `target` (or one of SOURCE_NAMES and TARGET_NAMES) if the
    first line has them, else the first two columns.
    """

    source: str | int | None = None
    target: str | int | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            given = "source" if self.target is None else "target"
            missing = "target" if self.target is None else "source"
            column = _parse_column(getattr(self, given))
            raise CorpusError(
                f"the {given} column is {column!r} but the {missing} column is not set; set both "
                "or neither"
            )

    @property
    def columns(self) -> tuple[str | int, str | int] | None:
        """Both columns, or None if neither is set. Digits from a command line are numbers."""
        if self.source is None or self.target is None:
            return None
        return _parse_column(self.source), _parse_column(self.target)


@dataclass(frozen=True)
class ColumnLayout:
    """Resolved columns: source and target index from 0, column count, and header or not."""

    source: int
    target: int
    width: int
    header: bool

    @property
    def description(self) -> str:
        """The layout in words."""
        header = "with a header" if self.header else "no header"
        columns = f"source is column {self.source + 1} and target column {self.target + 1}"
        return f"{header}; {columns} of {self.width}"


def resolve_columns(
    name: str, format: str, first: Sequence[str], width: int, request: ColumnRequest
) -> ColumnLayout:
    """The columns of a file, from its first row and the most common number of columns (`width`)."""
    cells = [cell.strip() for cell in first]
    columns = request.columns
    source, target = _find_name(cells, SOURCE_NAMES), _find_name(cells, TARGET_NAMES)
    names_both = source is not None and target is not None
    if columns is None:
        if request.header is not False and source is not None and target is not None:
            return ColumnLayout(source, target, width, True)
        columns = 1, 2
    by_name = any(isinstance(column, str) for column in columns)
    if request.header is False and by_name:
        raise CorpusError(
            f"{name}: columns are named {columns!r} but header is False; number them from 1 instead"
        )
    source, target = (_column_index(name, format, cells, width, column) for column in columns)
    if by_name:
        return ColumnLayout(source, target, width, True)
    header = request.header
    if header is None and source == target:  # one column only: the whole first row decides
        header = names_both
    elif header is None:
        header = (
            max(source, target) < len(cells)
            and cells[source].casefold() in SOURCE_NAMES
            and cells[target].casefold() in TARGET_NAMES
        )
    return ColumnLayout(source, target, width, header)


def decode_line(number: int, raw: bytes) -> str | ParsedRow:
    """A line as text, or a row that states the problem."""
    if len(raw) > MAX_LINE_BYTES:
        detail = f"the line is longer than {MAX_LINE_BYTES >> 20} MiB"
        return ParsedRow(number, raw, problem="line too long", detail=detail)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} of the line, 0x{raw[error.start]:02X},"
        return ParsedRow(number, raw, problem="broken UTF-8", detail=f"{byte} is not valid UTF-8")


def make_row(number: int, raw: bytes, source: str, target: str) -> ParsedRow:
    """A pair without surrounding white space; an empty side is a problem."""
    source, target = source.strip(), target.strip()
    if source and target:
        return ParsedRow(number, raw, source, target)
    detail = f"the {'target' if source else 'source'} is empty"
    return ParsedRow(number, raw, problem="empty side", detail=detail)


def _column_index(
    name: str, format: str, cells: Sequence[str], width: int, column: str | int
) -> int:
    if isinstance(column, str):
        if column not in cells:
            raise CorpusError(
                f"{name}: the first line has no column {column!r}; {suggestion(column, cells)}"
            )
        return cells.index(column)
    if not 1 <= column <= width:
        count = f"{width} column{'s' * (width != 1)}"
        raise CorpusError(
            f"{name}, read as {format}, has {count}; there is no column {column} (counted from 1)"
        )
    return column - 1


def _find_name(cells: Sequence[str], names: Sequence[str]) -> int | None:
    """The index of the first known name among the cells."""
    folded = [cell.casefold() for cell in cells]
    return next((folded.index(name) for name in names if name in folded), None)


def _parse_column(column: str | int) -> str | int:
    return int(column) if isinstance(column, str) and column.isdecimal() else column
