"""Files of word vectors, read and written in the common formats, and of analogy questions."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import RegardError, choose
from regard.vectors.vector_formats import FORMATS, Rows, VectorFormat, detect_vector_format


def read_vectors(
    path: str | Path, format: str | None = None
) -> tuple[list[str], Float[Tensor, "word dim"]]:
    """Read the words and the float32 table of a file; the format is detected unless given."""
    name = str(path)
    chosen = None if format is None else choose(FORMATS, format, "format")
    with open_binary(path) as file:
        chosen = chosen or detect_vector_format(file, name)
        words, numbers, dim = chosen.read(file, name)
    rows = np.frombuffer(numbers, dtype="<f4").reshape(-1, dim).astype(np.float32, copy=False)
    _check(name, chosen, words, rows)
    return words, torch.from_numpy(rows)


def _check(name: str, format: VectorFormat, words: Sequence[str], rows: Rows) -> None:
    if not words:
        raise RegardError(f"{name}: the file has no words")
    if not all(words):
        raise RegardError(
            f"{format.location(name, words.index(''))}: the word before the numbers is missing"
        )
    if len(set(words)) < len(words):
        word, _ = Counter(words).most_common(1)[0]
        first = words.index(word)
        again = words.index(word, first + 1)
        earlier = format.location(name, first)
        raise RegardError(f"{format.location(name, again)}: {word!r} already occurs at {earlier}")
    wrong = _not_finite(rows)
    if wrong is not None:
        location = format.location(name, wrong)
        raise RegardError(f"{location}: the vector of {words[wrong]!r} contains NaN or infinity")


def _not_finite(rows: Rows) -> int | None:
    """The first row with NaN or infinity."""
    for start in range(0, len(rows), 4096):  # in blocks, to save memory
        finite = np.isfinite(rows[start : start + 4096]).all(axis=1)
        if not finite.all():
            return start + int(finite.argmin())
    return None


def write_vectors(
    path: str | Path,
    words: Sequence[str],
    table: Float[Tensor, "word dim"],
    format: str = "word2vec",
) -> None:
    """Write a file as float32, atomically; a path that ends in .gz is gzipped."""
    path = Path(path)
    rows: Rows = table.detach().to("cpu", torch.float32).numpy()
    pieces = choose(FORMATS, format, "format").write(words, rows)
    wrong = _not_finite(rows)
    if wrong is not None:
        raise RegardError(f"the vector of {words[wrong]!r} does not fit into float32")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as plain:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as compressed:
                    compressed.writelines(pieces)
            else:
                plain.writelines(pieces)
            plain.flush()
            os.fsync(plain.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def open_binary(path: str | Path) -> Iterator[BufferedIOBase]:
    """Open a file for reading bytes; gzipped content is decompressed, whatever the name."""
    with open(path, "rb") as plain:
        compressed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        try:
            yield gzip.GzipFile(fileobj=plain) if compressed else plain
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise RegardError(f"{path}: broken gzip file: {error}") from None


Question = tuple[str, str, str, str]


@dataclass(frozen=True)
class Section:
    """The results of one section. A question with a word outside the table is `unknown`, not
    wrong."""

    name: str
    right: int = 0
    wrong: int = 0
    unknown: int = 0

    @property
    def questions(self) -> int:
        """The number of questions, including unknown ones."""
        return self.right + self.wrong + self.unknown

    @property
    def accuracy(self) -> float | None:
        """The share of right answers among known questions, as in the papers; None without any."""
        known = self.right + self.wrong
        return self.right / known if known else None


@dataclass(frozen=True)
class Accuracy:
    """The results of a table by section and in total; `print` shows them as a table."""

    sections: tuple[Section, ...]

    @property
    def all(self) -> Section:
        """The total over all sections."""
        counts = ((section.right, section.wrong, section.unknown) for section in self.sections)
        return Section("all", *map(sum, zip(*counts, strict=True)))

    def __str__(self) -> str:
        rows = [("section", "accuracy", "right", "wrong", "unknown")]
        for section in (*self.sections, self.all):
            share = "–" if section.accuracy is None else f"{section.accuracy:.1%}"
            right, wrong = str(section.right), str(section.wrong)
            rows.append((section.name, share, right, wrong, str(section.unknown)))
        width = max(len(row[0]) for row in rows)
        return "\n".join(
            f"{name:<{width}}" + "".join(f"{cell:>10}" for cell in cells) for name, *cells in rows
        )


def tally(name: str, outcomes: Iterable[bool | None]) -> Section:
    """Count the outcomes of a section: True is right, False is wrong, None is unknown."""
    outcomes = list(outcomes)
    return Section(name, outcomes.count(True), outcomes.count(False), outcomes.count(None))


def read_questions(path: str | Path) -> dict[str, list[Question]]:
    """The questions by section. A line `: name` starts a section; any other line has four words
    `a b c d` (a is to b as c is to d). Questions before the first section belong to section "".
    """
    sections: dict[str, list[Question]] = {}
    name = ""
    with open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                words = line.decode("utf-8-sig" if number == 1 else "utf-8").split()
            except UnicodeDecodeError as error:
                raise RegardError(f"{path}:{number}: not UTF-8 text: {error.reason}") from None
            if not words:
                continue
            if words[0].startswith(":"):
                name = " ".join(words).removeprefix(":").strip()
                sections.setdefault(name, [])
            elif len(words) == 4:
                sections.setdefault(name, []).append((words[0], words[1], words[2], words[3]))
            else:
                raise RegardError(f"{path}:{number}: a question has four words; got {len(words)}")
    if not any(sections.values()):
        raise RegardError(f"{path}: no questions; a question is a line of four words")
    return sections
