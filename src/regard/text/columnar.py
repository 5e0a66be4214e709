"""Columnar files: rows of Parquet and Arrow (IPC and Feather) files, and tables written to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from regard.text.file_ranges import RowRange
from regard.text.files import File
from regard.text.workbooks import BATCH_ROWS, Cells, cell_text, import_extra, report_unreadable

PARQUET = b"PAR1"
ARROW = b"ARROW1"  # an Arrow file, which Feather (version 2) is
ARROW_STREAM = b"\xff\xff\xff\xff"
KINDS = {PARQUET: "Parquet", ARROW[:4]: "Arrow", ARROW_STREAM: "Arrow"}  # by the first four bytes
GROUP_ROWS = 1 << 16  # written together: a row group of Parquet, a batch of Arrow

# The types of the columns that `regard predict` and `regard evaluate` write.
TYPES = {
    "line": "int64",
    "source": "string",
    "output": "string",
    "score": "float64",
    "alignment": "string",
    "tokens": "list<string>",
    "logps": "list<float64>",
    "logp": "float64",
    "confidence": "float64",
    "unknown": "list<string>",
    "target": "string",
    "reference": "string",
    "edits": "int64",
}


def columnar_rows(file: File) -> Iterator[tuple[int, Cells]]:
    """The column names as row 0, then the rows (of a RowRange: those in it), read in batches."""
    start, stop = (file.start, file.stop) if isinstance(file, RowRange) else (0, None)
    with _opened(file) as (names, groups):
        yield 0, names
        number = 0
        for rows, load in groups:
            if number + rows <= start:
                number += rows
                continue
            if stop is not None and number >= stop:
                return
            for batch in load():
                columns = [column.to_pylist() for column in batch.columns]
                for row in zip(*columns, strict=True):
                    number += 1
                    if number > start and (stop is None or number <= stop):
                        yield number, [cell_text(cell) for cell in row]


def count_rows(file: File) -> int:
    """The number of rows, from the metadata where the format has it."""
    with _opened(file) as (_, groups):
        return sum(rows for rows, _ in groups)


@contextmanager
def _opened(file: File) -> Iterator[tuple[list[str], Iterator[tuple[int, Any]]]]:
    """The column names, and for each group its number of rows and a function that reads them."""
    with file.open() as stored:
        kind = KINDS.get(stored.peek(4)[:4], "Parquet")
        with report_unreadable(file, f"{'an' if kind == 'Arrow' else 'a'} {kind} file"):
            if kind == "Parquet":
                parquet = import_extra("pyarrow.parquet", "parquet", file.name)
                table = parquet.ParquetFile(stored)
                yield list(table.schema_arrow.names), _parquet_groups(table)
                return
            ipc = import_extra("pyarrow", "parquet", file.name).ipc
            if stored.peek(4)[:4] == ARROW_STREAM:
                stream = ipc.open_stream(stored)
                yield list(stream.schema.names), ((len(one), _only(one)) for one in stream)
                return
            table = ipc.open_file(stored)
            batches = (table.get_batch(at) for at in range(table.num_record_batches))
            yield list(table.schema.names), ((len(one), _only(one)) for one in batches)


def _parquet_groups(table: Any) -> Iterator[tuple[int, Any]]:
    for group in range(table.num_row_groups):
        rows = table.metadata.row_group(group).num_rows
        yield rows, lambda group=group: table.iter_batches(BATCH_ROWS, row_groups=[group])


def _only(batch: Any) -> Any:
    return lambda: [batch]


class ColumnarWriter:
    """Writes rows to a Parquet or Arrow file, by the suffix of its name; use it in a `with` block.

    `columns` are the names of the columns, in order; TYPES has their types.
    """

    def __init__(self, path: Path, suffix: str, columns: Sequence[str]) -> None:
        self._arrow = import_extra("pyarrow", "parquet", str(path))
        types = [(name, _data_type(self._arrow, TYPES[name])) for name in columns]
        self._schema = self._arrow.schema(types)
        self._parquet = suffix == ".parquet"
        if self._parquet:
            library = import_extra("pyarrow.parquet", "parquet", str(path))
            self._writer = library.ParquetWriter(path, self._schema, compression="zstd")
        else:
            self._writer = self._arrow.ipc.new_file(str(path), self._schema)

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Write some rows as one group."""
        self._writer.write_batch(self._arrow.RecordBatch.from_pylist(rows, schema=self._schema))

    def __enter__(self) -> ColumnarWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def write_columnar(lines: Path, path: Path, suffix: str, columns: Sequence[str]) -> None:
    """Convert JSON lines to a Parquet or Arrow file with these columns."""
    with open(lines, "rb") as file, ColumnarWriter(path, suffix, columns) as writer:
        while rows := [json.loads(line) for line in islice(file, GROUP_ROWS)]:
            writer.write(rows)


def write_columns(
    rows: Iterable[Sequence[Any]], path: Path, suffix: str, columns: Sequence[str]
) -> None:
    """Write rows to a Parquet or Arrow file with these columns."""
    named = (dict(zip(columns, row, strict=True)) for row in rows)
    with ColumnarWriter(path, suffix, columns) as writer:
        while group := list(islice(named, GROUP_ROWS)):
            writer.write(group)


def check_columnar(name: str) -> None:
    """Raise unless the library that reads and writes columnar files is installed."""
    import_extra("pyarrow", "parquet", name)


def _data_type(arrow: Any, kind: str) -> Any:
    if kind.startswith("list<"):
        return arrow.list_(_data_type(arrow, kind[5:-1]))
    return getattr(arrow, kind)()
