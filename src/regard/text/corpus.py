"""Corpus: pairs of source and target text from files of any common shape, one at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePath

from regard.errors import choose
from regard.text.column_choice import Wanted
from regard.text.detect import detect
from regard.text.files import CorpusError, File, file, lines
from regard.text.parallel import parallel
from regard.text.reading import Pair, Part, Reading
from regard.text.row_format import Row

BAD_LINES = {"stop": "a bad line is an error", "skip": "bad lines are counted and left out"}
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Corpus:
    """Pairs in one file or several; with `targets`, each file's lines are sources and those of its partner targets.

    Files may be plain, gzip, xz or zstandard; "-" is standard input. `decisions` says how each file is read. Columns go
    by name or by number from 1. Nothing is held in memory: every `read()` is a new pass over the files.
    """

    def __init__(
        self,
        files: Paths,
        targets: Paths | None = None,
        *,
        source: str | int | None = None,
        target: str | int | None = None,
        header: bool | None = None,
        format: str | None = None,
        bad_lines: str = "stop",
    ) -> None:
        choose(BAD_LINES, bad_lines, "way with bad lines")
        self.bad_lines = bad_lines
        wanted = Wanted(source, target, header)
        names, partners = _listed(files), None if targets is None else _listed(targets)
        if not names:
            raise CorpusError(
                "no file of pairs is named; name them first, for --targets and --held-out take all names that follow"
            )
        if (names + (partners or [])).count("-") > 1:
            raise CorpusError("standard input ('-') can be given only once")
        if partners is not None and (len(names) != len(partners) or source or target or header or format):
            if len(names) != len(partners):
                raise CorpusError(f"{len(names)} source files but {len(partners)} target files; each needs its partner")
            raise CorpusError("parallel files have neither columns, header nor format; leave these out")
        self.files = [file(name) for name in names]
        self.decisions: list[str] = []
        self._ways: list[str] = []
        self._parts: list[Part] = []
        if partners is None:
            for one in self.files:
                found, way = detect(one, wanted, format)
                self.decisions.append(f"{one.name}: {way}")
                self._ways.append(f"{_last(one)}: {way}")
                self._parts.append((one.name, partial(_rows, found.rows, one)))
            return
        for one, name in zip(list(self.files), partners, strict=True):
            other = file(name)
            self.files.append(other)
            way = "line by line, sources and targets"
            self.decisions.append(f"{one.name} and {other.name}: {way}")
            self._ways.append(f"{_last(one)} and {_last(other)}: {way}")
            self._parts.append((one.name, partial(parallel, one, other)))

    def read(self, aside: str | os.PathLike[str] | None = None) -> Reading:
        """One pass over all pairs. Bad lines that are skipped are written to the file `aside`."""
        return Reading(self._parts, self.bad_lines == "skip", aside)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.read())

    def fingerprint(self) -> dict[str, str]:
        """The sha256 of each file as it is stored, by its name, and how the files are read. Folders do not count: the
        same file is the same data wherever it lies, and however one says where."""
        prints = {"reading": "; ".join([*self._ways, f"bad lines: {self.bad_lines}"])}
        for one in self.files:
            name = _last(one)
            while name in prints:
                name += "'"
            with one.open() as stored:
                prints[name] = hashlib.file_digest(stored, "sha256").hexdigest()
        return prints


def _rows(read: Callable[[Iterator[tuple[int, bytes]]], Iterator[Row]], one: File) -> Iterator[Row]:
    return read(lines(one))


def _last(one: File) -> str:
    return PurePath(one.name).name


def _listed(paths: Paths) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]
