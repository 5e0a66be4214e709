"""Training pairs from Python: files, lists, iterators, pandas and polars frames, HF datasets."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from regard.errors import RegardError, suggestion
from regard.text import Corpus, CorpusReader, Pair
from regard.text.header_detection import SOURCE_NAMES, TARGET_NAMES
from regard.text.row_format import ParsedRow, make_row


@runtime_checkable
class PairSource(Protocol):
    """What a run reads: `Corpus` and `MemoryCorpus`."""

    bad_lines: str
    decisions: list[str]

    def read(self, bad_lines_path: str | os.PathLike[str] | None = None) -> CorpusReader:
        """One pass over all pairs."""

    def __iter__(self) -> Iterator[Pair]: ...

    def fingerprint(self) -> dict[str, str]:
        """The identity of the data, compared when a run is resumed."""


class MemoryCorpus:
    """Pairs in memory. `bad_lines`: stop at an empty text, or skip it."""

    def __init__(self, pairs: Sequence[tuple[str, str]], description: str, bad_lines: str) -> None:
        self.pairs, self.bad_lines = pairs, bad_lines
        self.decisions = [f"{len(pairs):,} pairs from {description}"]

    def read(self, bad_lines_path: str | os.PathLike[str] | None = None) -> CorpusReader:
        """One pass over all pairs."""
        return CorpusReader([("pairs", self._rows)], self.bad_lines == "skip", bad_lines_path)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.read())

    def fingerprint(self) -> dict[str, str]:
        """The sha256 of all pairs; the kind of container does not count."""
        digest = hashlib.sha256()
        for source, target in self.pairs:
            digest.update(f"{source}\0{target}\0".encode("utf-8", "surrogatepass"))
        return {"reading": f"bad lines: {self.bad_lines}", "pairs": digest.hexdigest()}

    def _rows(self) -> Iterator[ParsedRow]:
        for number, (source, target) in enumerate(self.pairs, 1):
            yield make_row(number, b"", source, target)


def as_corpus(
    pairs: Any,
    *,
    source: str | None = None,
    target: str | None = None,
    bad_lines: str = "stop",
) -> PairSource:
    """The corpus of anything that holds pairs. `source`, `target`: the columns of a table."""
    if isinstance(pairs, PairSource):
        return pairs
    if isinstance(pairs, str | os.PathLike):
        pairs = [pairs]
    columns = _columns(pairs)
    if columns is not None:
        names = _choose_columns(columns, source, target)
        values = zip(*(_column(pairs, name) for name in names), strict=True)
        kind = f"a {type(pairs).__name__}, columns {names[0]!r} and {names[1]!r}"
        return MemoryCorpus(_check(values), kind, bad_lines)
    if isinstance(pairs, Sequence) and pairs and isinstance(pairs[0], str | os.PathLike):
        return Corpus(pairs, source=source, target=target, bad_lines=bad_lines)
    if not isinstance(pairs, Iterable):
        raise RegardError(
            "pairs must be files, a list of (source, target) pairs, a DataFrame or a Dataset; got "
            f"{type(pairs).__name__}"
        )
    return MemoryCorpus(_check(_rows(pairs, source, target)), "memory", bad_lines)


def _columns(table: Any) -> list[str] | None:
    """The column names of a table (pandas, polars, datasets, mapping of lists); else None."""
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    names = getattr(table, "column_names", None)
    if names is None:
        names = getattr(table, "columns", None)
    return None if names is None or callable(names) else [str(name) for name in names]


def _column(table: Any, name: str) -> Iterable[Any]:
    values = table[name]
    return values.to_list() if hasattr(values, "to_list") else values


def _choose_columns(names: list[str], source: str | None, target: str | None) -> tuple[str, str]:
    """The source and target columns: as given, by their names, or the only two."""
    if (source is None) != (target is None):
        raise RegardError("give both column names, source=… and target=…, or neither")
    if source is not None and target is not None:
        for name in (source, target):
            if name not in names:
                raise RegardError(f"there is no column {name!r}; {suggestion(name, names)}")
        return source, target
    first = next((name for name in names if name.casefold() in SOURCE_NAMES), None)
    second = next((name for name in names if name.casefold() in TARGET_NAMES), None)
    if first is not None and second is not None:
        return first, second
    if len(names) != 2:
        columns = ", ".join(map(repr, names))
        raise RegardError(f"the table has the columns {columns}; give source=… and target=…")
    return names[0], names[1]


def _rows(rows: Iterable[Any], source: str | None, target: str | None) -> Iterator[Any]:
    """Pairs, or the two columns of rows that are mappings."""
    columns: tuple[str, str] | None = None
    for row in rows:
        if isinstance(row, Mapping):
            columns = columns or _choose_columns([str(name) for name in row], source, target)
            yield row[columns[0]], row[columns[1]]
        else:
            yield row


def _check(rows: Iterable[Any]) -> list[tuple[str, str]]:
    """All rows as pairs of texts; an error names the row."""
    pairs = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != 2:
            raise RegardError(f"row {number} must be a (source, target) pair; got {row!r:.80}")
        for side, text in zip(("source", "target"), row, strict=True):
            if not isinstance(text, str):
                raise RegardError(
                    f"row {number}: the {side} must be a str; got {text!r:.40}; convert or drop it"
                )
        pairs.append((row[0], row[1]))
    return pairs
