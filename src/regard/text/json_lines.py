"""JSON lines: an object or an array of pairs' texts in every line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from regard.errors import suggestion
from regard.text.column_choice import SOURCES, TARGETS, Wanted
from regard.text.files import CorpusError
from regard.text.row_format import Format, Line, Row, decoded, filled


class JsonLines(Format):
    """A JSON object or array in every line; a dot leads into an object within: `translation.en`."""

    def __init__(self, source: str | int, target: str | int) -> None:
        self.source = source
        self.target = target
        self.said = f"JSON lines, source is {_called(source)} and target {_called(target)}"

    @classmethod
    def settled(cls, name: str, head: Sequence[Line], wanted: Wanted) -> JsonLines:
        if wanted.columns:
            return cls(*wanted.columns)
        try:
            first = json.loads(head[0][1])
        except (ValueError, RecursionError):
            if head[0][1].strip() in (b"[", b"{") or len(head) == 1:
                raise CorpusError(f"{name} is not JSON lines; write each object in a line of its own (jq -c)") from None
            return cls("source", "target")  # the first line is a bad one, to be reported as such
        if isinstance(first, list) and first and not isinstance(first[0], str):
            raise CorpusError(f"{name} is one JSON array; write each of its pairs in a line of its own (jq -c '.[]')")
        if isinstance(first, list):
            return cls(1, 2)
        keys = list(first) if isinstance(first, dict) else []
        source = next((key for key in keys if key.casefold() in SOURCES), None)
        target = next((key for key in keys if key.casefold() in TARGETS), None)
        if source is not None and target is not None:
            return cls(source, target)
        if len(keys) == 2 and all(isinstance(value, str) for value in first.values()):
            return cls(*keys)
        raise CorpusError(
            f"{name}: which of {', '.join(map(repr, keys)) or 'no columns'} are source and target? Name both"
        )

    def rows(self, lines: Iterator[Line]) -> Iterator[Row]:
        for number, raw in lines:
            text = decoded(number, raw)
            yield text if isinstance(text, Row) else self._row(number, raw, text)

    def _row(self, number: int, raw: bytes, text: str) -> Row:
        if not text.strip():
            return Row(number, raw, problem="empty line", detail="the line is empty")
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            return Row(number, raw, problem="broken JSON", detail=f"this is no JSON: {error}")
        sides = []
        for side, column in (("source", self.source), ("target", self.target)):
            value, missing = _found(record, column)
            if missing:
                return Row(number, raw, problem="missing column", detail=f"no {side}: {missing}")
            if not isinstance(value, str):
                detail = f"the {side} is {json.dumps(value)[:40]}, not text in quotes"
                return Row(number, raw, problem="not text", detail=detail)
            if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                return Row(number, raw, problem="broken UTF-8", detail=f"the {side} has half a surrogate pair")
            sides.append(value)
        return filled(number, raw, *sides)


def _found(record: Any, column: str | int) -> tuple[Any, str]:
    """The value at a place (from 1) of an array or under a dotted name of an object; or why there is none."""
    if isinstance(column, int):
        if not isinstance(record, list):
            return None, f"column {column} was asked for, but the line is no array"
        if 0 < column <= len(record):
            return record[column - 1], ""
        return None, f"column {column} was asked for, of an array of {len(record)}"
    if isinstance(record, dict) and column in record:
        return record[column], ""
    value = record
    for name in column.split("."):
        if not isinstance(value, dict):
            return None, f"{name!r} was asked for, but there is no object to hold it"
        if name not in value:
            return None, f"there is no {name!r}; {suggestion(name, value)}"
        value = value[name]
    return value, ""


def _called(column: str | int) -> str:
    return repr(column) if isinstance(column, str) else f"value {column}"
