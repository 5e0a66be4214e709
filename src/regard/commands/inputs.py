"""Input lines of `regard predict`: from arguments, files or standard input, in windows.

A window holds only what is available now: a person at a terminal gets an answer after each line, a
slow pipe is answered without waiting for more, and a file is read in thousands. The windows of a
file are the same in every run, so that a resumed job computes bit-identical numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from regard.commands.shards import Shard
from regard.errors import RegardError
from regard.pipeline import FIRST_LINES, MOST_LINES


class InputLine(NamedTuple):
    """One source text and where it comes from (FILE:LINE, when it is printed)."""

    place: object
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
    begins: bool = True  # whether no lines precede these
    identity: Mapping[str, Any] = MappingProxyType({})  # recognises the input of a shard

    @abstractmethod
    def windows(self) -> Windows:
        """The lines, in windows of those that are available."""

    def count_before(self) -> int:
        """The number of lines that precede these, in other shards."""
        return 0

    @abstractmethod
    def count(self) -> int | None:
        """The number of lines, from a quick count; None if it cannot be known."""


class StoredInputs(Inputs):
    """Input lines that can be read any number of times."""

    @abstractmethod
    def lines(self) -> Iterator[InputLine]:
        """All lines."""

    def windows(self) -> Windows:
        """All lines, in growing windows."""
        return growing_windows(self.lines())


class TextInputs(StoredInputs):
    """Texts given as arguments."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def lines(self) -> Iterator[InputLine]:
        """All texts."""
        return (InputLine(f"text {n}", text.strip()) for n, text in enumerate(self._texts, 1))

    def count(self) -> int:
        """The number of texts."""
        return len(self._texts)


def open_inputs(
    texts: Sequence[str] = (),
    files: Sequence[str] = (),
    column: str | int | None = None,
    shard: Shard | None = None,
    **reading: Any,
) -> Inputs:
    """The inputs of a command: texts, files ("-": standard input), or else standard input.

    Table files, and all files if `column` is given, are read by rows; `reading` says how: `header`,
    `encoding` and `sheet`. With a `shard`, only its lines are read; standard input is then copied
    to a temporary file first.
    """
    if texts and files:
        raise RegardError(f"give texts or --input, not both; got {texts[0]!r} and {files[0]!r}")
    stream = not texts and list(files) in ([], ["-"])
    if column is not None and (stream or texts):
        raise RegardError("--column applies to table files only; name them with --input")
    if "-" in files and len(files) > 1:
        raise RegardError("standard input ('-') must be the only input; leave out the files")
    if texts and shard is None:
        return TextInputs(texts)
    from regard.commands.input_files import FileInputs, StreamInputs  # loads the file formats

    if stream and shard is None:
        return StreamInputs(reading.get("encoding"))
    found = TextInputs(texts) if texts else FileInputs(files or ["-"], column, **reading)
    if shard is None:
        return found
    from regard.commands.shard_inputs import ShardInputs

    return ShardInputs(found, shard)


def growing_windows(lines: Iterable[InputLine]) -> Windows:
    """Windows that start small, for early answers, and double."""
    source, count = iter(lines), FIRST_LINES
    while window := list(islice(source, count)):
        yield window
        count = min(2 * count, MOST_LINES)
