"""The input lines of one shard: a contiguous range of any input.

Plain files of lines, tab-separated tables and JSON lines are split by bytes, and columnar files by
the row counts of their metadata, so that a shard reads little more than its own lines. Other inputs
(compressed, CSV, workbooks, other encodings) are read twice: once to count their lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Any

from regard.commands.input_files import FileInputs, read_input
from regard.commands.inputs import InputLine, StoredInputs
from regard.commands.shards import Shard
from regard.text.columnar import count_rows
from regard.text.file_ranges import FilePart, LineRange, RowRange, plain_size
from regard.text.files import File, read_lines
from regard.text.json_lines import JsonLinesFormat
from regard.text.row_format import RowFormat
from regard.text.table_formats import TsvFormat, WorkbookFormat

SAMPLES, SAMPLE_BYTES = 64, 4_096  # of each file, to recognise an input without reading it


class ShardInputs(StoredInputs):
    """The lines of one shard of some inputs."""

    def __init__(self, inputs: StoredInputs, shard: Shard) -> None:
        self.notes, self.table = inputs.notes, inputs.table
        self._split: _Split = _CountedLines(inputs)
        if isinstance(inputs, FileInputs):
            self._split = _split_files(inputs) or self._split
        self._bounds = shard.bounds(self._split.size)

    @cached_property
    def begins(self) -> bool:  # type: ignore[override]
        """Whether no lines precede those of this shard."""
        return next(self._split.lines(0, self._bounds[0]), None) is None

    def lines(self) -> Iterator[InputLine]:
        """The lines of this shard."""
        return self._split.lines(*self._bounds)

    def count(self) -> int | None:
        """The number of lines, from a quick count."""
        return self._split.count(*self._bounds)

    def count_before(self) -> int:
        """The number of lines before this shard; reads the input up to it."""
        return sum(1 for _ in self._split.lines(0, self._bounds[0]))

    @cached_property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        """Recognises the whole input; equal for all shards of one input."""
        return {"size": self._split.size, "sha256": self._split.digest}


class _Split:
    """Positions 0 to `size` of an input, with all lines at ascending positions."""

    size: int
    digest: str

    def lines(self, start: int, stop: int) -> Iterator[InputLine]:
        """The lines between two positions."""
        raise NotImplementedError

    def count(self, start: int, stop: int) -> int | None:
        """About how many lines there are between two positions."""
        return stop - start


class _CountedLines(_Split):
    """Any input by line number, which takes one pass to count (and to hash) the lines."""

    def __init__(self, inputs: StoredInputs) -> None:
        self._inputs = inputs

    @cached_property
    def _pass(self) -> tuple[int, str]:
        count, digest = 0, hashlib.sha256()
        for line in self._inputs.lines():
            digest.update(line.text.encode(errors="replace") + b"\0")
            count += 1
        return count, digest.hexdigest()

    @property
    def size(self) -> int:  # type: ignore[override]
        return self._pass[0]

    @property
    def digest(self) -> str:  # type: ignore[override]
        return self._pass[1]

    def lines(self, start: int, stop: int) -> Iterator[InputLine]:
        return islice(self._inputs.lines(), start, stop)


class _FileRanges(_Split):
    """Files by byte or by row: each has an origin (after its header), a size and a format."""

    def __init__(
        self,
        part: type[FilePart],
        files: list[tuple[File, RowFormat | None]],
        origins: list[int],
        ends: list[int],
    ) -> None:
        self._part, self._files, self._origins, self._ends = part, files, origins, ends
        sizes = [end - origin for origin, end in zip(origins, ends, strict=True)]
        self._offsets = [0, *accumulate(sizes)]
        self.size = self._offsets[-1]

    @cached_property
    def digest(self) -> str:  # type: ignore[override]
        return _sample_digest([file for file, _ in self._files])

    def lines(self, start: int, stop: int) -> Iterator[InputLine]:
        for (_, format), part, rest in self._parts(start, stop):
            yield from read_input(part, format, rest)

    def count(self, start: int, stop: int) -> int | None:
        parts = [part for _, part, _ in self._parts(start, stop)]
        return sum(p.count() if isinstance(p, LineRange) else p.stop - p.start for p in parts)

    def _parts(
        self, start: int, stop: int
    ) -> Iterator[tuple[tuple[File, RowFormat | None], FilePart, FilePart]]:
        """The parts of the files between two positions, each with the rest of its file."""
        spans = zip(self._files, self._origins, self._ends, self._offsets[:-1], strict=True)
        for one, origin, end, offset in spans:
            first = max(start - offset, 0) + origin
            last = min(stop - offset + origin, end)
            if first < last:
                yield one, self._part(one[0], first, last), self._part(one[0], last, end)


def _split_files(inputs: FileInputs) -> _FileRanges | None:
    """The files as ranges of bytes or of rows; None if they can only be read from their start."""
    files = inputs.sources()
    formats = [format for _, format in files]
    if all(isinstance(one, WorkbookFormat) and one.kind != "sheet" for one in formats):
        rows = [count_rows(file) for file in inputs.files]
        return _FileRanges(RowRange, files, [0] * len(files), rows)
    splittable = (type(None), TsvFormat, JsonLinesFormat)
    sizes = [plain_size(file) for file in inputs.files]
    if not all(type(one) in splittable for one in formats):
        return None
    ends = [size for size in sizes if size is not None]
    if len(ends) < len(sizes):
        return None
    origins = [_header_end(file, one) for file, one in files]
    below = [(file, _without_header(one)) for file, one in files]
    return _FileRanges(LineRange, below, origins, ends)


def _header_end(file: File, format: RowFormat | None) -> int:
    """The first byte after the header of a tab-separated table; 0 if there is none."""
    if not isinstance(format, TsvFormat) or not format.columns.header:
        return 0
    number = next((number for number, raw in read_lines(file) if raw.strip()), 0)
    with file.open() as stored:
        return sum(len(line) for line in islice(stored, number))


def _without_header(format: RowFormat | None) -> RowFormat | None:
    if not isinstance(format, TsvFormat):
        return format
    return TsvFormat(replace(format.columns, header=False))


def _sample_digest(files: list[File]) -> str:
    """The sha256 of the sizes of some files and of blocks at regular distances in them."""
    digest = hashlib.sha256()
    for file in files:
        with file.open() as stored:
            size = stored.seek(0, 2)
            digest.update(size.to_bytes(8, "little"))
            for sample in range(SAMPLES + 1):
                stored.seek(max(0, size - SAMPLE_BYTES) * sample // SAMPLES)
                digest.update(stored.read(SAMPLE_BYTES))
    return digest.hexdigest()
