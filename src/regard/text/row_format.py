"""Row: one pair of a file, or what is wrong with it. Problems are said here, and raised or counted by the reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from regard.text.column_choice import Wanted
from regard.text.files import LONGEST_LINE

Line = tuple[int, bytes]


class Row(NamedTuple):
    """One pair with its line number and raw bytes; or a `problem` (its kind) and the `detail` a person needs."""

    line: int
    raw: bytes
    source: str = ""
    target: str = ""
    problem: str = ""
    detail: str = ""


class Format(ABC):
    """A way of writing pairs in lines, settled for one file."""

    said: str

    @classmethod
    @abstractmethod
    def settled(cls, name: str, head: Sequence[Line], wanted: Wanted) -> Format:
        """This format for the file that starts with these lines."""

    @abstractmethod
    def rows(self, lines: Iterator[Line]) -> Iterator[Row]:
        """Every pair and every problem of a file."""


def decoded(number: int, raw: bytes) -> str | Row:
    """The line as text, or what is wrong with it."""
    if len(raw) > LONGEST_LINE:
        return Row(number, raw, problem="line too long", detail=f"the line is longer than {LONGEST_LINE >> 20} MiB")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        detail = f"byte {error.start + 1} of the line is 0x{raw[error.start]:02X}, which is no UTF-8 here"
        return Row(number, raw, problem="broken UTF-8", detail=detail)


def filled(number: int, raw: bytes, source: str, target: str) -> Row:
    """The pair without outer white space; neither side may be empty."""
    source, target = source.strip(), target.strip()
    if source and target:
        return Row(number, raw, source, target)
    return Row(number, raw, problem="empty side", detail=f"the {'target' if source else 'source'} is empty")
