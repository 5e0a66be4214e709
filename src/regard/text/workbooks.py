"""Workbooks: text cells from .xlsx, .xls and .ods, and to .xlsx."""

from __future__ import annotations

import csv
import datetime
import importlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import list_names
from regard.text.files import CorpusError, File

SUMMARY_SHEET = "Export Summary"  # added by Apple Numbers
BATCH_ROWS = 4_096
ZIP = b"PK\x03\x04"
OLE = b"\xd0\xcf\x11\xe0"  # .xls, .doc and .ppt
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # not allowed in a workbook

Cells = list[str]


class Cell(str):
    """The text of a cell that is not text in the file; `kind` is its type (date, truth value)."""

    kind: str


def workbook_rows(file: File, sheet: str | None) -> tuple[str, Iterator[tuple[int, Cells]]]:
    """The name of the sheet that is read, and its rows with their numbers."""
    calamine = import_extra("python_calamine", "excel", file.name)
    with file.open() as stored:
        data = io.BytesIO(stored.read())
    with report_unreadable(file, "a workbook"):
        book = calamine.CalamineWorkbook.from_filelike(data)
        rows = {name: _sheet_rows(book, name) for name in book.sheet_names}
    name = _choose_sheet(file, rows, sheet)
    return name, ((number, [cell_text(cell) for cell in row]) for number, row in rows[name])


def _sheet_rows(book: Any, name: str) -> list[tuple[int, list[Any]]]:
    """The rows of a sheet that are not empty, with their numbers from 1."""
    rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
    return [(number, row) for number, row in enumerate(rows, 1) if any(c != "" for c in row)]


def _choose_sheet(file: File, rows: dict[str, Any], requested: str | None) -> str:
    """The requested sheet, or the only one that is not empty."""
    names = [name for name in rows if rows[name] and name != SUMMARY_SHEET]
    listed = list_names(names)
    if requested is not None:
        if requested not in rows or not rows[requested]:
            raise CorpusError(f"{file.name} has no sheet {requested!r} with rows; it has {listed}")
        return requested
    if not names:
        raise CorpusError(f"{file.name} is empty")
    if len(names) > 1:
        raise CorpusError(
            f"{file.name} has {len(names)} sheets: {listed}; pass one, for example --sheet "
            f"{names[0]!r}"
        )
    return names[0]


def cell_text(value: Any) -> str:
    """A cell as text. Numbers are written without needless decimals; dates and truth values are
    marked, because a spreadsheet makes them from text such as "1/2" or "true"."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | datetime.date | datetime.time | datetime.timedelta):
        cell = Cell(value)
        cell.kind = "a truth value" if isinstance(value, bool) else "a date or time"
        return cell
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def write_workbook(rows: Path, path: Path) -> None:
    """Write the rows of a CSV file as an .xlsx file of text cells."""
    openpyxl = import_extra("openpyxl", "excel", str(path))
    cells = importlib.import_module("openpyxl.cell")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")
    with open(rows, encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            line = []
            for text in row:
                cell = cells.WriteOnlyCell(sheet, CONTROL.sub(" ", text))
                cell.data_type = "s"  # text that begins with "=" is no formula
                line.append(cell)
            sheet.append(line)
    book.save(path)


def import_extra(module: str, extra: str, name: str) -> Any:
    """Import a library that only this kind of file needs."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise CorpusError(
            f"{name} needs the extra {extra!r}: pip install 'regard[{extra}]', or export it as CSV"
        ) from None


@contextmanager
def report_unreadable(file: File, what: str) -> Iterator[None]:
    """Turn the errors of a library into one line."""
    try:
        yield
    except (CorpusError, GeneratorExit):
        raise
    except Exception as error:  # the libraries raise many kinds
        reason = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise CorpusError(
            f"{file.name} cannot be read as {what} ({reason}); open it and export it as CSV"
        ) from None
