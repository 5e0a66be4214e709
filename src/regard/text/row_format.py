"""Rows and columns of a corpus file: one parsed row, and which columns hold source and target.

A row carries its problem, if it has one; the reader decides whether to raise or to count it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.errors import suggestion
from regard.text.files import MAX_LINE_BYTES, CorpusError, File
from regard.text.header_detection import (
    HEADER_WORDS,
    NUMBER,
    SOURCE_NAMES,
    TARGET_NAMES,
    WORD,
    detect_header,
)
from regard.text.tag_detection import is_tag_column

MAX_LISTED = 8  # columns named in a message
NOT_TEXT = {"lang", "language", "id", "nr", "index", "number"}  # `source_lang` is no source
Line = tuple[int, bytes]


class ParsedRow(NamedTuple):
    """A pair with its line number and raw bytes, or a `problem` (its category) with a `detail`."""

    line: int
    raw: bytes
    source: str = ""
    target: str = ""
    problem: str = ""
    detail: str = ""


TableRow = tuple[int, bytes, list[str] | ParsedRow]
"""The line number, raw bytes and cells of a row, or the row with its problem."""


class RowFormat(ABC):
    """A file format with one pair per row, configured for one file."""

    description: str

    @abstractmethod
    def rows(self, file: File) -> Iterator[ParsedRow]:
        """Parse the whole file; bad rows have a problem."""


@dataclass(frozen=True)
class ReadRequest:
    """How the user wants a file to be read; None is detected.

    Columns are given by name or by number from 1. `header` says whether the first row is a header,
    `sheet` names a sheet of a workbook. `source_only`: one column is enough.
    """

    source: str | int | None = None
    target: str | int | None = None
    header: bool | None = None
    encoding: str | None = None
    sheet: str | None = None
    source_only: bool = False

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
    """Resolved columns: source and target index from 0, column count, the first row, whether it is
    a header, and why. A column of `tags` is appended to the source after a space."""

    source: int
    target: int
    width: int
    header: bool
    first: tuple[str, ...] = ()
    reason: str = ""
    tags: int | None = None

    @property
    def last(self) -> int:
        """The last column that is used."""
        return max(self.source, self.target, -1 if self.tags is None else self.tags)

    def source_text(self, cells: Sequence[str]) -> str:
        """The source in the cells of a row."""
        source = cells[self.source].strip()
        if not source or self.tags is None:
            return source
        return f"{source} {''.join(cells[self.tags].split())}"  # a bundle of tags has no spaces

    @property
    def description(self) -> str:
        """The layout in words."""
        header = "with a header" if self.header else "no header"
        if self.reason:
            option = "--no-header" if self.header else "--header"
            header += f" ({self.reason}; {option} if this is wrong)"
        tags = "" if self.tags is None else f" with the tags of column {self.tags + 1}"
        columns = f"source is column {self.source + 1}{tags} and target column {self.target + 1}"
        return f"{header}; {columns} of {self.width}"


def resolve_columns(
    name: str, format: str, rows: Sequence[Sequence[str]], request: ReadRequest
) -> ColumnLayout:
    """The columns of a file, from its first rows."""
    first = tuple(cell.strip() for cell in rows[0])
    width = modal_width(rows)
    source, target = _find_name(first, SOURCE_NAMES), _find_name(first, TARGET_NAMES)
    if request.source_only:
        target = source
    named = source is not None and target is not None and request.header is not False
    columns = request.columns
    if columns is None and source is not None and target is not None and named:
        return ColumnLayout(source, target, width, True, first)
    parts = [part for column in columns or () for part in split_column(column, first)]
    by_name = any(isinstance(part, str) for part in parts)
    if request.header is False and by_name:
        raise CorpusError(
            f"{name}: columns are named {columns!r} but header is False; number them from 1 instead"
        )
    header, reason = request.header, ""
    if header is None:
        header, reason = (True, "") if by_name or named else detect_header(rows)
    if columns is None:
        columns = find_tagged(rows[header:], source_only=request.source_only) or _only_columns(
            name, rows, header=header, source_only=request.source_only
        )
    given, tags = split_column(columns[0], first)
    both = given, given if request.source_only else columns[1]
    source, target = (_column_index(name, format, first, width, column) for column in both)
    index = None if tags is None else _column_index(name, format, first, width, tags)
    return ColumnLayout(source, target, width, header, first, reason, index)


def _only_columns(
    name: str, rows: Sequence[Sequence[str]], *, header: bool, source_only: bool
) -> tuple[int, int]:
    """The numbers of the only two columns (`source_only`: of the only one) that are not empty."""
    width = modal_width(rows)
    used = [i for i in range(width) if any(row[i].strip() for row in rows if i < len(row))]
    if source_only and len(used) == 1:
        return used[0] + 1, used[0] + 1
    if not source_only and len(used) <= 2:
        return (used[0] + 1, used[1] + 1) if len(used) == 2 else (1, 2)
    if not used:
        raise CorpusError(f"{name} has no text in its first lines; give a file with texts")
    listed = describe_columns(rows, used, header=header)
    texts = [i for i in used if not _is_numeric(rows[1:], i)] + used
    question = "which are source and target? Pass for example"
    options = f"--source {texts[0] + 1} --target {texts[1] + 1}"
    if source_only:
        question, options = "which is the source? Pass for example", f"--column {texts[0] + 1}"
    raise CorpusError(f"{name} has {len(used)} columns: {listed}; {question} {options}")


def find_tagged(
    rows: Sequence[Sequence[str]], *, source_only: bool
) -> tuple[str | int, str | int] | None:
    """The columns of a table of word, form and tags, in any order after the word; the source is
    `1+3`. With `source_only`, there may be no form."""
    width = modal_width(rows) if rows else 0
    columns = [[row[i] for row in rows if i < len(row)] for i in range(width)]
    tagged = [i for i in range(1, width) if is_tag_column(columns[i])]
    if len(tagged) != 1 or not (width == 3 or (width == 2 and source_only)):
        return None
    target = next((i for i in range(1, width) if i not in tagged), 0)
    return f"1+{tagged[0] + 1}", target + 1


def split_column(column: str | int, names: Sequence[str]) -> tuple[str | int, str | int | None]:
    """A source column such as `lemma`, or with the column of its tags: `1+3`, `lemma+tags`."""
    if isinstance(column, int) or column in names or column.count("+") != 1:
        return column, None
    source, tags = column.split("+")
    return _parse_column(source), _parse_column(tags)


def describe_columns(
    rows: Sequence[Sequence[str]], used: Sequence[int], *, header: bool = False
) -> str:
    """The columns with their names and two samples each, for a message."""
    parts = []
    for i in used[:MAX_LISTED]:
        cells = [" ".join(row[i].split())[:20] for row in rows if i < len(row)]
        heading = f"{i + 1} {cells[0]!r}" if header else f"{i + 1}"
        samples = list(dict.fromkeys(cell for cell in cells[header:] if cell))[:2]
        parts.append(f"{heading} ({', '.join(samples)})")
    return ", ".join(parts) + ", …" * (len(used) > MAX_LISTED)


def modal_width(rows: Sequence[Sequence[str]]) -> int:
    """The most common number of columns."""
    return Counter(map(len, rows)).most_common(1)[0][0]


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


def bad_row(number: int, raw: bytes, problem: str, detail: str) -> ParsedRow:
    """A row with a problem."""
    return ParsedRow(number, raw, problem=problem, detail=detail)


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


def _find_name(cells: Sequence[str], names: frozenset[str]) -> int | None:
    """The index of the column with one of these names, such as `source`, or `source_text`."""
    exact = [i for i, cell in enumerate(cells) if cell.casefold() in names]
    if exact:
        return exact[0]
    similar = []
    for i, cell in enumerate(cells):
        words = set(WORD.findall(cell.casefold()))
        if words & names and words <= HEADER_WORDS and not words & NOT_TEXT:
            similar.append(i)
    return similar[0] if len(similar) == 1 else None


def _is_numeric(rows: Sequence[Sequence[str]], index: int) -> bool:
    cells = [row[index].strip() for row in rows if index < len(row) and row[index].strip()]
    return bool(cells) and all(map(NUMBER.fullmatch, cells))


def _parse_column(column: str | int) -> str | int:
    return int(column) if isinstance(column, str) and column.isdecimal() else column
