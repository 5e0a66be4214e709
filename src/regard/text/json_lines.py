"""JSON lines: one object or array per line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from regard.errors import list_names, suggestion
from regard.text.files import CorpusError, File, read_lines
from regard.text.header_detection import SOURCE_NAMES, TARGET_NAMES
from regard.text.row_format import (
    Line,
    ParsedRow,
    ReadRequest,
    RowFormat,
    bad_row,
    decode_line,
    make_row,
)


class JsonLinesFormat(RowFormat):
    """One JSON object or array per line; a dot selects a nested value: `translation.en`."""

    def __init__(self, source: str | int, target: str | int) -> None:
        self.source = source
        self.target = target
        columns = f"source is {_describe(source)} and target {_describe(target)}"
        self.description = f"JSON lines, {columns}"

    @classmethod
    def from_head(cls, name: str, head: Sequence[Line], request: ReadRequest) -> JsonLinesFormat:
        """Configure this format for a file that starts with these lines."""
        if request.columns:
            return cls(*request.columns)
        try:
            first = json.loads(head[0][1])
        except (ValueError, RecursionError):
            if head[0][1].strip() in (b"[", b"{") or len(head) == 1:
                raise CorpusError(
                    f"{name} is not JSON lines; write one object per line (jq -c)"
                ) from None
            return cls("source", "target")  # only the first line is bad; the reader reports it
        if isinstance(first, list) and first and not isinstance(first[0], str):
            raise CorpusError(f"{name} is one JSON array; write one pair per line (jq -c '.[]')")
        if isinstance(first, list):
            if sum(isinstance(value, str) for value in first) > 2:
                raise CorpusError(
                    f"{name} has {len(first)} values per line; which are source and target? Pass "
                    "for example --source 1 --target 2"
                )
            return cls(1, 2)
        keys = list(first) if isinstance(first, dict) else []
        source = next((key for key in keys if key.casefold() in SOURCE_NAMES), None)
        target = next((key for key in keys if key.casefold() in TARGET_NAMES), None)
        if source is not None and target is not None:
            return cls(source, target)
        if len(keys) == 2 and all(isinstance(value, str) for value in first.values()):
            return cls(*keys)
        listed = list_names(keys) or "no columns"
        raise CorpusError(
            f"{name}: which of {listed} are source and target? Name both with --source and --target"
        )

    def rows(self, file: File) -> Iterator[ParsedRow]:
        """Parse all lines."""
        for number, raw in read_lines(file):
            text = decode_line(number, raw)
            yield text if isinstance(text, ParsedRow) else self._parse(number, raw, text)

    def _parse(self, number: int, raw: bytes, text: str) -> ParsedRow:
        if not text.strip():
            return bad_row(number, raw, "empty line", "the line is empty")
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            return bad_row(number, raw, "broken JSON", f"the line is not valid JSON: {error}")
        values = []
        for side, column in (("source", self.source), ("target", self.target)):
            value, missing = _select(record, column)
            if missing:
                return bad_row(number, raw, "missing column", f"no {side}: {missing}")
            if not isinstance(value, str):
                detail = f"the {side} is {json.dumps(value)[:40]}, not a string"
                return bad_row(number, raw, "not text", detail)
            if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
                detail = f"the {side} has half a surrogate pair"
                return bad_row(number, raw, "broken UTF-8", detail)
            values.append(value)
        return make_row(number, raw, *values)


def _select(record: Any, column: str | int) -> tuple[Any, str]:
    """The value at an index (from 1) or a dotted name, or the reason why it is missing."""
    if isinstance(column, int):
        if not isinstance(record, list):
            return None, f"column {column} was requested, but the line is not an array"
        if 0 < column <= len(record):
            return record[column - 1], ""
        return None, f"column {column} was requested from an array of {len(record)}"
    if isinstance(record, dict) and column in record:
        return record[column], ""
    value = record
    for name in column.split("."):
        if not isinstance(value, dict):
            return None, f"{name!r} was requested, but its parent is not an object"
        if name not in value:
            return None, f"there is no {name!r}; {suggestion(name, value)}"
        value = value[name]
    return value, ""


def _describe(column: str | int) -> str:
    return repr(column) if isinstance(column, str) else f"value {column}"
