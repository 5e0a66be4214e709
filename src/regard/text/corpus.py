"""Corpus: a stream of source–target pairs from files in any common format, which is detected."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

from regard.errors import choose
from regard.text.columnar import KINDS
from regard.text.files import CorpusError, DamagedFile, File, open_file, read_lines
from regard.text.json_lines import JsonLinesFormat
from regard.text.reading import CorpusPart, CorpusReader, Pair, read_parallel
from regard.text.row_format import Line, ReadRequest, RowFormat, modal_width
from regard.text.table_formats import (
    CsvFormat,
    TableFormat,
    TsvFormat,
    WorkbookFormat,
    likely_delimiter,
)
from regard.text.text_encoding import detect_encoding
from regard.text.workbooks import OLE, ZIP

BAD_LINES = {"stop": "a bad line is an error", "skip": "bad lines are skipped and counted"}
TEXT_FORMATS: dict[str, Callable[[str, Sequence[Line], ReadRequest], RowFormat]] = {
    "tsv": TsvFormat.from_head,
    "csv": CsvFormat.from_head,
    "jsonl": JsonLinesFormat.from_head,
}
FORMATS = {**TEXT_FORMATS, "excel": None, "parquet": None, "arrow": None}
SUFFIXES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xlsb": "excel",
    ".xls": "excel",
    ".ods": "excel",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
OTHER_DOCUMENTS = (".numbers", ".docx", ".doc", ".odt", ".pages", ".pdf", ".rtf", ".html", ".htm")
COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst", ".zstd", ".bz2")
HEAD_LINES = 1_000
HEAD_BYTES = 1 << 20
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Corpus:
    """Pairs in one or more files. With `targets`, the lines of each file are sources, and the lines
    of its counterpart are targets.

    Files may be plain, gzip, xz, zstandard or bzip2; "-" is standard input. Columns are selected by
    name or by number from 1. `header`, `encoding` and `sheet` override what is detected.
    `decisions` lists how each file is read. Nothing is kept in memory: every `read()` is a new pass
    over the files.
    """

    def __init__(
        self,
        files: Paths,
        targets: Paths | None = None,
        *,
        source: str | int | None = None,
        target: str | int | None = None,
        header: bool | None = None,
        encoding: str | None = None,
        sheet: str | None = None,
        format: str | None = None,
        bad_lines: str = "stop",
    ) -> None:
        choose(BAD_LINES, bad_lines, "bad-line policy")
        self.bad_lines = bad_lines
        request = ReadRequest(source, target, header, encoding, sheet)
        names, counterparts = _as_list(files), None if targets is None else _as_list(targets)
        if not names:
            raise CorpusError(
                "no files of pairs given; put them first, because --targets and --held-out take "
                "all names that follow"
            )
        if (names + (counterparts or [])).count("-") > 1:
            raise CorpusError("standard input ('-') can be given only once")
        if counterparts is not None and len(names) != len(counterparts):
            raise CorpusError(
                f"{len(names)} source files but {len(counterparts)} target files; each needs a "
                "counterpart"
            )
        if counterparts is not None and (source or target or header or format or sheet):
            raise CorpusError(
                "parallel files do not have columns, a header or a format; omit these options"
            )
        self.files = [open_file(name) for name in names]
        self.decisions: list[str] = []
        self.notes: list[str] = []  # decisions that the user should check
        self._descriptions: list[str] = []
        self._parts: list[CorpusPart] = []
        if counterparts is None:
            for file in self.files:
                found = detect_format(file, request, format)
                self.decisions.append(f"{file.name}: {found.description}")
                self.notes += self.decisions[-1:] if found.notable else []
                self._descriptions.append(f"{_file_name(file)}: {found.description}")
                self._parts.append((file.name, partial(found.format.rows, file)))
            return
        for file, name in zip(list(self.files), counterparts, strict=True):
            other = open_file(name)
            self.files.append(other)
            encodings = [(one, detect_encoding(one, encoding)) for one in (file, other)]
            guessed = [f"{_file_name(one)} is {found}" for one, found in encodings if found]
            description = "; ".join(["parallel files, line by line", *guessed])
            self.decisions.append(f"{file.name} and {other.name}: {description}")
            self.notes += self.decisions[-1:] if guessed else []
            both = f"{_file_name(file)} and {_file_name(other)}"
            self._descriptions.append(f"{both}: {description}")
            self._parts.append((file.name, partial(read_parallel, file, other)))

    def read(self, bad_lines_path: str | os.PathLike[str] | None = None) -> CorpusReader:
        """One pass over all pairs. Skipped lines are written to `bad_lines_path`."""
        return CorpusReader(self._parts, self.bad_lines == "skip", bad_lines_path)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.read())

    def fingerprint(self) -> dict[str, str]:
        """The sha256 of each stored file by its base name, and how the files are read.

        Folders do not count: a file that was moved is still the same data.
        """
        reading = "; ".join([*self._descriptions, f"bad lines: {self.bad_lines}"])
        fingerprint = {"reading": reading}
        for file in self.files:
            name = _file_name(file)
            while name in fingerprint:
                name += "'"
            with file.open() as stored:
                fingerprint[name] = hashlib.file_digest(stored, "sha256").hexdigest()
        return fingerprint


class DetectedFormat(NamedTuple):
    """The format of a file, and a description that says how it was chosen. `notable`: the encoding
    or the header was guessed, so the user should see the description."""

    format: RowFormat
    description: str
    notable: bool


def detect_format(file: File, request: ReadRequest, format: str | None = None) -> DetectedFormat:
    """The requested or detected format of a file."""
    if format is not None:
        choose(FORMATS, format, "format")
        kind, reason = format, "as requested"
    else:
        kind, reason = _format_by_name(file.name), "by its name"
    with file.open() as stored:
        first = stored.peek(4)[:4]
    if first in (ZIP, OLE, *KINDS):
        kind = KINDS[first].lower() if first in KINDS else "excel"
        reason = reason if _format_by_name(file.name) == kind else "by its content"
    if kind in ("excel", "parquet", "arrow"):
        named = {"excel": "sheet", "parquet": "Parquet", "arrow": "Arrow"}[kind]
        table = WorkbookFormat.from_file(file, named, request, HEAD_LINES)
        return DetectedFormat(table, f"{table.description} ({reason})", bool(table.columns.reason))
    encoding = detect_encoding(file, request.encoding)
    head = read_head(file)
    if not head:
        raise CorpusError(f"{file.name} is empty")
    if not kind:
        kind, reason = _format_by_content(file.name, head), "by its first lines"
    found = TEXT_FORMATS[kind](file.name, head, request)
    encoded = f"{encoding}; " if encoding else ""
    notable = bool(encoding or (isinstance(found, TableFormat) and found.columns.reason))
    return DetectedFormat(found, f"{encoded}{found.description} ({reason})", notable)


def read_head(file: File) -> list[Line]:
    """The first lines that are not blank."""
    head: list[Line] = []
    size = 0
    try:
        for number, line in read_lines(file):
            if line.strip():
                head.append((number, line))
            size += len(line)
            if number >= HEAD_LINES or size > HEAD_BYTES:
                break
    except DamagedFile:
        if not head:
            raise
    return head


def is_table_name(name: str) -> bool:
    """Whether a file name is that of a table: CSV, TSV, a workbook, Parquet or Arrow."""
    return _format_by_name(name) in ("tsv", "csv", "excel", "parquet", "arrow")


def _format_by_name(name: str) -> str:
    path = PurePath(name)
    if path.suffix.lower() in COMPRESSED_SUFFIXES:
        path = path.with_suffix("")
    if path.suffix.lower() in OTHER_DOCUMENTS:
        raise CorpusError(f"{name} is a document, not a table; export it as CSV or Excel")
    return SUFFIXES.get(path.suffix.lower(), "")


def _format_by_content(name: str, head: Sequence[Line]) -> str:
    if head[0][1].lstrip()[:1] in (b"{", b"["):
        return "jsonl"
    if sum(b"\t" in line for _, line in head) > len(head) / 2:
        return "tsv"
    if modal_width(likely_delimiter(head)[1]) > 1:
        return "csv"
    raise CorpusError(
        f"{name} seems to have one column: no tabs, commas or JSON in its first lines; "
        "give pairs, or a second file whose lines are the targets"
    )


def _file_name(file: File) -> str:
    return PurePath(file.name).name


def _as_list(paths: Paths) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]
