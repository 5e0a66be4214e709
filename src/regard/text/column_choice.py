"""Which columns of a file hold the source and the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import suggestion
from regard.text.files import CorpusError

SOURCES = ("source", "src", "input", "from")
TARGETS = ("target", "tgt", "output", "to")


@dataclass(frozen=True)
class Wanted:
    """What a person asked for: columns by name or by number from 1, and whether the first line holds the names.

    None leaves it to the file: named `source` and `target` (or as in SOURCES and TARGETS), else the first two.
    """

    source: str | int | None = None
    target: str | int | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            given, missing = ("source", "target") if self.target is None else ("target", "source")
            column = _numbered(getattr(self, given))
            raise CorpusError(f"the {given} column is {column!r} but no {missing} column is named; name both or none")

    @property
    def columns(self) -> tuple[str | int, str | int] | None:
        """Both columns, or None when the file decides. A number may come as text, as from a command line."""
        if self.source is None or self.target is None:
            return None
        return _numbered(self.source), _numbered(self.target)


@dataclass(frozen=True)
class Columns:
    """What was decided: places from 0, of how many, and whether the first line is a header."""

    source: int
    target: int
    width: int
    header: bool

    @property
    def said(self) -> str:
        """The decision in words."""
        header = "with a header" if self.header else "no header"
        return f"{header}; source is column {self.source + 1} and target column {self.target + 1} of {self.width}"


def settle(name: str, how: str, first: Sequence[str], width: int, wanted: Wanted) -> Columns:
    """The columns of a file, read as `how` says, with this first line and as many columns as most of its lines have."""
    cells = [cell.strip() for cell in first]
    columns = wanted.columns
    if columns is None:
        source, target = _known(cells, SOURCES), _known(cells, TARGETS)
        if wanted.header is not False and source is not None and target is not None:
            return Columns(source, target, width, True)
        columns = 1, 2
    if wanted.header is False and any(isinstance(column, str) for column in columns):
        raise CorpusError(f"{name}: columns are named {columns!r} but header is False; number them from 1 instead")
    source, target = (_place(name, how, cells, width, column) for column in columns)
    if any(isinstance(column, str) for column in columns):
        return Columns(source, target, width, True)
    looks = cells[source : source + 1] + cells[target : target + 1]
    header = wanted.header
    if header is None and source == target:  # one column alone is asked for: the whole line says what it is
        header = _known(cells, SOURCES) is not None and _known(cells, TARGETS) is not None
    elif header is None:
        header = len(looks) == 2 and looks[0].casefold() in SOURCES and looks[1].casefold() in TARGETS
    return Columns(source, target, width, header)


def _place(name: str, how: str, cells: Sequence[str], width: int, column: str | int) -> int:
    if isinstance(column, str):
        if column not in cells:
            raise CorpusError(f"{name}: its first line names no column {column!r}; {suggestion(column, cells)}")
        return cells.index(column)
    if not 1 <= column <= width:
        has = f"{width} column{'s' * (width != 1)}"
        raise CorpusError(f"{name}, read as {how}, has {has}; there is no column {column} (they count from 1)")
    return column - 1


def _known(cells: Sequence[str], names: Sequence[str]) -> int | None:
    """Where the first of the known names stands."""
    folded = [cell.casefold() for cell in cells]
    return next((folded.index(name) for name in names if name in folded), None)


def _numbered(column: str | int) -> str | int:
    return int(column) if isinstance(column, str) and column.isdecimal() else column
