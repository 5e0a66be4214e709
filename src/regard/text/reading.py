"""Reading: one pass over the pairs of a corpus, stopping at a bad line or counting it and going on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

from regard.text.files import CorpusError, DamagedFile
from regard.text.row_format import Row

Part = tuple[str, Callable[[], Iterator[Row]]]


class Pair(NamedTuple):
    """A source text and its target text, without outer white space."""

    source: str
    target: str


class Reading:
    """One pass over a corpus. As it goes, `pairs` counts what came, `problems` what was left out, by reason."""

    def __init__(
        self,
        parts: Sequence[Part],
        skip: bool,
        aside: str | os.PathLike[str] | None,
    ) -> None:
        self.pairs = 0
        self.problems = Counter[str]()
        self.first: dict[str, str] = {}
        self._parts = parts
        self._skip = skip
        self._aside = aside

    def __iter__(self) -> Iterator[Pair]:
        with ExitStack() as stack:
            bad = stack.enter_context(_Aside(self._aside)) if self._aside is not None else None
            for name, rows in self._parts:
                empty: list[Row] = []  # lines at a file's very end that hold nothing are no mistake
                try:
                    for row in rows():
                        if row.problem == "empty line":
                            empty.append(row)
                            continue
                        for late in empty:
                            self._refuse(name, late, bad)
                        empty.clear()
                        if row.problem:
                            self._refuse(name, row, bad)
                        else:
                            self.pairs += 1
                            yield Pair(row.source, row.target)
                except DamagedFile as error:
                    if not self._skip:
                        raise
                    self._count(name, Row(0, b"", problem="damaged file", detail=str(error)), bad)
            if not self.pairs:
                names = ", ".join(name for name, _ in self._parts)
                raise CorpusError(f"no pairs in {names}{f'; {self.summary()}' if self.problems else ''}")
            if bad is not None:
                bad.keep()

    def summary(self) -> str:
        """What was left out, in a sentence; empty when nothing was."""
        if not self.problems:
            return ""
        reasons = (
            f"{count:,} {reason} (first at {self.first[reason]})" for reason, count in self.problems.most_common()
        )
        count = self.problems.total()
        return f"{count:,} bad line{'s' * (count != 1)} left out: {', '.join(reasons)}"

    def _refuse(self, name: str, row: Row, bad: _Aside | None) -> None:
        if not self._skip:
            raise CorpusError(f"{name}:{row.line}: {row.detail}; mend the line, or go on without it: --bad-lines skip")
        self._count(name, row, bad)

    def _count(self, name: str, row: Row, bad: _Aside | None) -> None:
        place = f"{name}:{row.line}" if row.line else name
        self.problems[row.problem] += 1
        self.first.setdefault(row.problem, place)
        if bad is not None:
            bad.write(place, row)


class _Aside:
    """The file of bad lines: place, reason and raw bytes, between tabs; there when the pass ended, and not before."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._partial = Path(f"{os.fspath(path)}.partial")
        self._file: BinaryIO

    def __enter__(self) -> _Aside:
        try:
            self._file = open(self._partial, "wb")
        except OSError as error:
            raise CorpusError(f"cannot write bad lines to {str(self._path)!r}: {error.strerror}") from None
        return self

    def write(self, place: str, row: Row) -> None:
        self._file.write(f"{place}\t{row.problem}: {row.detail}\t".encode(errors="replace") + row.raw + b"\n")

    def keep(self) -> None:
        self._file.close()
        self._partial.replace(self._path)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)
