"""CorpusReader: one pass over the pairs of a corpus; bad lines are errors, or skipped and
counted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, zip_longest
from pathlib import Path
from typing import BinaryIO, NamedTuple

from regard.text.files import CorpusError, DamagedFile, File, read_lines
from regard.text.row_format import Line, ParsedRow, decode_line, make_row

CorpusPart = tuple[str, Callable[[], Iterator[ParsedRow]]]  # a file name and its rows


class Pair(NamedTuple):
    """A source text and its target text, without surrounding white space."""

    source: str
    target: str


class CorpusReader:
    """One pass over a corpus. `pairs` counts the pairs read so far, `problems` the skipped lines by
    category, and `first` holds the first location of each category."""

    def __init__(
        self,
        parts: Sequence[CorpusPart],
        skip: bool,
        bad_lines_path: str | os.PathLike[str] | None,
    ) -> None:
        self.pairs = 0
        self.problems = Counter[str]()
        self.first: dict[str, str] = {}
        self._parts = parts
        self._skip = skip
        self._bad_lines_path = bad_lines_path

    def __iter__(self) -> Iterator[Pair]:
        with ExitStack() as stack:
            path = self._bad_lines_path
            bad_lines = None if path is None else stack.enter_context(_BadLinesFile(path))
            for name, rows in self._parts:
                empty: list[ParsedRow] = []  # empty lines at the end of a file are not an error
                try:
                    for row in rows():
                        if not row.problem and not empty:
                            self.pairs += 1
                            yield Pair(row.source, row.target)
                            continue
                        if row.problem == "empty line":
                            empty.append(row)
                            continue
                        for earlier in empty:
                            self._reject(name, earlier, bad_lines)
                        empty.clear()
                        if row.problem:
                            self._reject(name, row, bad_lines)
                        else:
                            self.pairs += 1
                            yield Pair(row.source, row.target)
                except DamagedFile as error:
                    if not self._skip:
                        raise
                    damaged = ParsedRow(0, b"", problem="damaged file", detail=str(error))
                    self._count(name, damaged, bad_lines)
            if not self.pairs:
                names = ", ".join(name for name, _ in self._parts)
                skipped = f"; {self.summary()}" if self.problems else ""
                raise CorpusError(f"no pairs in {names}{skipped}")
            if bad_lines is not None:
                bad_lines.commit()

    def summary(self) -> str:
        """The skipped lines in one sentence; empty if there are none."""
        if not self.problems:
            return ""
        reasons = (
            f"{count:,} {reason} (first at {self.first[reason]})"
            for reason, count in self.problems.most_common()
        )
        count = self.problems.total()
        return f"skipped {count:,} bad line{'s' * (count != 1)}: {', '.join(reasons)}"

    def _reject(self, name: str, row: ParsedRow, bad_lines: _BadLinesFile | None) -> None:
        if not self._skip:
            encoding = ", name the --encoding" if "not valid UTF-8" in row.detail else ""
            raise CorpusError(
                f"{name}:{row.line}: {row.detail}; fix the line{encoding}, or skip it with "
                "--bad-lines skip"
            )
        self._count(name, row, bad_lines)

    def _count(self, name: str, row: ParsedRow, bad_lines: _BadLinesFile | None) -> None:
        location = f"{name}:{row.line}" if row.line else name
        self.problems[row.problem] += 1
        self.first.setdefault(row.problem, location)
        if bad_lines is not None:
            bad_lines.write(location, row)


class _BadLinesFile:
    """The skipped lines as tab-separated location, reason and raw bytes; created when the pass is
    complete."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._partial = Path(f"{os.fspath(path)}.partial")
        self._file: BinaryIO

    def __enter__(self) -> _BadLinesFile:
        try:
            self._file = open(self._partial, "wb")
        except OSError as error:
            raise CorpusError(
                f"cannot write bad lines to {str(self._path)!r}: {error.strerror}"
            ) from None
        return self

    def write(self, location: str, row: ParsedRow) -> None:
        reason = f"{location}\t{row.problem}: {row.detail}\t".encode(errors="replace")
        self._file.write(reason + row.raw + b"\n")

    def commit(self) -> None:
        self._file.close()
        self._partial.replace(self._path)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)


def read_parallel(source: File, target: File) -> Iterator[ParsedRow]:
    """Pairs of the n-th lines of both files; files of different lengths are an error."""
    left, right = read_lines(source), read_lines(target)
    for first, second in zip_longest(left, right):
        if first is None:
            return _check_rest(target, source, chain([second], right))
        if second is None:
            return _check_rest(source, target, chain([first], left))
        yield _parallel_row(first, second)


def _parallel_row(first: Line, second: Line) -> ParsedRow:
    number, raw = first[0], first[1] + b"\t" + second[1]
    if not raw.strip():
        detail = "the line is empty in both files"
        return ParsedRow(number, raw, problem="empty line", detail=detail)
    texts = []
    for side, line in (("source", first), ("target", second)):
        text = decode_line(*line)
        if isinstance(text, ParsedRow):
            detail = f"in the {side} file, {text.detail}"
            return ParsedRow(number, raw, problem=text.problem, detail=detail)
        texts.append(text)
    return make_row(number, raw, *texts)


def _check_rest(longer: File, shorter: File, rest: Iterable[Line]) -> None:
    """Raise unless the rest of the longer file is empty lines."""
    numbers = [number for number, line in rest if line.strip()]
    if numbers:
        count = f"{len(numbers):,} line{'s' * (len(numbers) != 1)}"
        raise CorpusError(
            f"{longer.name} has {count} more than {shorter.name}, from line {numbers[0]:,}; "
            "parallel files must match line by line"
        )
