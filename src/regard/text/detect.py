"""Which format a file is in: by its name, or by its first lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from regard.errors import choose
from regard.text.column_choice import Wanted
from regard.text.files import CorpusError, DamagedFile, File, lines
from regard.text.json_lines import JsonLines
from regard.text.row_format import Format, Line
from regard.text.tables import Quoted, Tabbed, likely_delimiter, usual_width

FORMATS: dict[str, type[Format]] = {"tsv": Tabbed, "csv": Quoted, "jsonl": JsonLines}
SUFFIXES = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
PACKED = (".gz", ".xz", ".zst", ".zstd")
HEAD_LINES, HEAD_BYTES = 100, 1 << 20


def detect(file: File, wanted: Wanted, format: str | None = None) -> tuple[Format, str]:
    """The format of a file, asked for or found; and what was decided and by what, in words."""
    head = first_lines(file)
    if not head:
        raise CorpusError(f"{file.name} is empty")
    if format is not None:
        kind, by = format, "as asked"
    else:
        kind, by = _by_name(file.name), "by its name"
        if not kind:
            kind, by = _by_content(file.name, head), "by its first lines"
    settled = choose(FORMATS, kind, "format").settled(file.name, head, wanted)
    return settled, f"{settled.said} ({by})"


def first_lines(file: File) -> list[Line]:
    """The first lines that hold anything, without reading further than needed."""
    head: list[Line] = []
    size = 0
    try:
        for number, line in lines(file):
            if line.strip():
                head.append((number, line))
            size += len(line)
            if number >= HEAD_LINES or size > HEAD_BYTES:
                break
    except DamagedFile:
        if not head:
            raise
    return head


def _by_name(name: str) -> str:
    path = PurePath(name)
    if path.suffix.lower() in PACKED:
        path = path.with_suffix("")
    return SUFFIXES.get(path.suffix.lower(), "")


def _by_content(name: str, head: Sequence[Line]) -> str:
    if head[0][1].lstrip()[:1] in (b"{", b"["):
        return "jsonl"
    if sum(b"\t" in line for _, line in head) > len(head) / 2:
        return "tsv"
    if usual_width(likely_delimiter(head)[1]) > 1:
        return "csv"
    raise CorpusError(
        f"{name} seems to hold one column: no tabs, commas or JSON in its first lines; "
        f"give pairs, or a second file whose lines are the targets"
    )
