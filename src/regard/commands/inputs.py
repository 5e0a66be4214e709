"""Input lines of `regard predict`: from arguments, files or standard input, in windows.

A window holds only what is available now: a person at a terminal gets an answer after each line, a
slow pipe is answered without waiting for more, and a file is read in thousands. The windows of a
file are the same in every run, so that a resumed job computes bit-identical numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from regard.errors import RegardError
from regard.pipeline import FIRST_LINES, MOST_LINES


class InputLine(NamedTuple):
    """One source text and where it comes from (FILE:LINE)."""

    place: str
    text: str


Windows = Iterator[list[InputLine]]


class TableStyle(NamedTuple):
    """How an input table looks: its delimiter, the name of its source column (None: no header), and
    whether Excel would misread it without a byte-order mark."""

    delimiter: str
    header: str | None
    bom: bool


class Inputs(ABC):
    """The input lines of a job. `notes` are guesses about files that the user should check,
    `table` is the style of the first table, and `interactive` says whether a person types."""

    notes: Sequence[str] = ()
    table: TableStyle | None = None
    interactive: bool = False

    @abstractmethod
    def windows(self) -> Windows:
        """The lines, in windows of those that are available."""

    @abstractmethod
    def count(self) -> int | None:
        """The number of lines, from a quick count; None if it cannot be known."""


class TextInputs(Inputs):
    """Texts given as arguments."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def windows(self) -> Windows:
        """All texts, in growing windows."""
        named = (InputLine(f"text {n}", text.strip()) for n, text in enumerate(self._texts, 1))
        return growing_windows(named)

    def count(self) -> int:
        """The number of texts."""
        return len(self._texts)


def open_inputs(
    texts: Sequence[str] = (),
    files: Sequence[str] = (),
    column: str | int | None = None,
    **reading: Any,
) -> Inputs:
    """The inputs of a command: texts, files ("-": standard input), or else standard input.

    Table files, and all files if `column` is given, are read by rows; `reading` says how: `header`,
    `encoding` and `sheet`.
    """
    if texts and files:
        raise RegardError(f"give texts or --input, not both; got {texts[0]!r} and {files[0]!r}")
    stream = not texts and list(files) in ([], ["-"])
    if column is not None and (stream or texts):
        raise RegardError("--column applies to table files only; name them with --input")
    if "-" in files and len(files) > 1:
        raise RegardError("standard input ('-') must be the only input; leave out the files")
    if texts:
        return TextInputs(texts)
    from regard.commands.input_files import FileInputs, StreamInputs  # loads the file formats

    return StreamInputs(reading.get("encoding")) if stream else FileInputs(files, column, **reading)


def growing_windows(lines: Iterable[InputLine]) -> Windows:
    """Windows that start small, for early answers, and double."""
    source, count = iter(lines), FIRST_LINES
    while window := list(islice(source, count)):
        yield window
        count = min(2 * count, MOST_LINES)
