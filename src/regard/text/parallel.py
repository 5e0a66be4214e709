"""Pairs from two files whose lines run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest

from regard.text.files import CorpusError, File, lines
from regard.text.row_format import Line, Row, decoded, filled


def parallel(source: File, target: File) -> Iterator[Row]:
    """Line n of one file with line n of the other. Files of unequal length raise: somewhere they slipped apart."""
    left, right = lines(source), lines(target)
    for first, second in zip_longest(left, right):
        if first is None:
            return _end(target, source, chain([second], right))
        if second is None:
            return _end(source, target, chain([first], left))
        yield _row(first, second)


def _row(first: Line, second: Line) -> Row:
    number, raw = first[0], first[1] + b"\t" + second[1]
    if not raw.strip():
        return Row(number, raw, problem="empty line", detail="the line is empty in both files")
    sides = []
    for side, line in (("source", first), ("target", second)):
        text = decoded(*line)
        if isinstance(text, Row):
            return Row(number, raw, problem=text.problem, detail=f"in the {side} file, {text.detail}")
        sides.append(text)
    return filled(number, raw, *sides)


def _end(longer: File, shorter: File, rest: Iterable[Line]) -> None:
    """One file has ended: what is left of the other may only be empty lines."""
    numbers = [number for number, line in rest if line.strip()]
    if numbers:
        raise CorpusError(
            f"{longer.name} goes on at line {numbers[0]:,}, after the end of {shorter.name}, for "
            f"{len(numbers):,} line{'s' * (len(numbers) != 1)}; parallel files must match line by line"
        )
