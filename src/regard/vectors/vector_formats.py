"""File formats of word vectors: word2vec text, word2vec binary and GloVe.

    word2vec          a line "words dim", then one line per word: the word and its numbers, as text
    word2vec-binary   the same first line, then per word: word, space, dim little-endian float32
    glove             word2vec text without the first line

In text a word may contain spaces (GloVe 840B has ". . ."): the last dim fields are its numbers. In
a word that is not UTF-8 (word2vec truncates long words), stray bytes are written as \\xNN.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from codecs import BOM_UTF8, utf_8_decode
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError

Rows = NDArray[np.float32]
_HEADER = re.compile(rb"(\d{1,18})[ \t]+(\d{1,18})\s*")
_CHUNK = 1 << 24


class VectorData(NamedTuple):
    """The words and numbers of a file; `numbers` are float32 bytes in a growing bytearray."""

    words: list[str]
    numbers: bytearray
    dim: int


class VectorFormat(ABC):
    """A file format of word vectors. `name` is the file name, for errors."""

    @abstractmethod
    def read(self, file: BufferedIOBase, name: str) -> VectorData:
        """Read all words and numbers of an open file."""

    @abstractmethod
    def write(self, words: Sequence[str], rows: Rows) -> Iterator[bytes]:
        """The chunks of the file, in order."""

    @abstractmethod
    def location(self, name: str, row: int) -> str:
        """The location of a row (from 0) for errors: its line or word number (from 1)."""


class Glove(VectorFormat):
    """Text without a header; the first line gives the dimension (Pennington et al. 2014)."""

    def read(self, file: BufferedIOBase, name: str) -> VectorData:
        first = file.readline()
        dim = trailing_numbers(first)
        if not dim:
            raise RegardError(f"{name}:1: expected a word and its numbers; got {excerpt(first)}")
        file.seek(0)
        return _parse_lines(file, name, dim, start=1)

    def write(self, words: Sequence[str], rows: Rows) -> Iterator[bytes]:
        pattern = b" %.9g" * rows.shape[1]  # nine digits identify every float32
        for word, row in zip(words, rows, strict=True):
            pieces = word.encode().split()
            if b" ".join(pieces) != word.encode() or not pieces:
                raise RegardError(
                    f"the word {word!r} cannot be written as text: it may only have single "
                    "spaces inside"
                )
            if len(pieces) > 1 and is_number(pieces[-1]):
                raise RegardError(
                    f"the word {word!r} cannot be written as text: {excerpt(pieces[-1])} would "
                    "be read as a number"
                )
            yield word.encode() + pattern % tuple(row.tolist()) + b"\n"

    def location(self, name: str, row: int) -> str:
        return f"{name}:{row + 1}"


class Word2VecText(Glove):
    """A header, then lines as in GloVe (Mikolov et al. 2013, the original tool)."""

    def read(self, file: BufferedIOBase, name: str) -> VectorData:
        count, dim = _read_header(file, name)
        contents = _parse_lines(file, name, dim, start=2)
        if len(contents.words) != count:
            raise RegardError(
                f"{name}:1: the header says {count} words; the file has {len(contents.words)}"
            )
        return contents

    def write(self, words: Sequence[str], rows: Rows) -> Iterator[bytes]:
        yield b"%d %d\n" % rows.shape
        yield from super().write(words, rows)

    def location(self, name: str, row: int) -> str:
        return f"{name}:{row + 2}"


class Word2VecBinary(VectorFormat):
    """A header, then words and raw float32. Only some tools end each record with a newline."""

    def read(self, file: BufferedIOBase, name: str) -> VectorData:
        count, dim = _read_header(file, name)
        words, numbers, buffer, start = [], bytearray(), b"", 0
        for row in range(count):
            while (space := buffer.find(b" ", start)) < 0 or len(buffer) < space + 1 + 4 * dim:
                more = file.read(_CHUNK)
                if not more:
                    raise RegardError(
                        f"{name}: truncated: the header says {count} words; the file ends in "
                        f"word {row + 1}"
                    )
                buffer, start = buffer[start:] + more, 0
            words.append(_decode(buffer[start:space].lstrip(b"\n")))
            start = space + 1 + 4 * dim
            numbers += buffer[space + 1 : start]
        if (buffer[start:] + file.read(2)).strip(b"\n"):
            raise RegardError(f"{name}:1: the header says {count} words; more follow")
        return VectorData(words, numbers, dim)

    def write(self, words: Sequence[str], rows: Rows) -> Iterator[bytes]:
        yield b"%d %d\n" % rows.shape
        for word, row in zip(words, rows.astype("<f4", copy=False), strict=True):
            if not word or " " in word or "\n" in word:
                raise RegardError(
                    f"the word {word!r} cannot be written in binary: it has a space; join its "
                    "parts with '_'"
                )
            yield word.encode() + b" " + row.tobytes() + b"\n"

    def location(self, name: str, row: int) -> str:
        return f"{name}: word {row + 1}"


FORMATS: dict[str, VectorFormat] = {
    "word2vec": Word2VecText(),
    "word2vec-binary": Word2VecBinary(),
    "glove": Glove(),
}


def detect_vector_format(file: BufferedIOBase, name: str) -> VectorFormat:
    """Detect the format of a file from its first line and first vector."""
    first = file.readline(_CHUNK).removeprefix(BOM_UTF8)
    header = _HEADER.fullmatch(first)
    size = min(4 * int(header[2]), _CHUNK) if header else 1
    sample = file.read(1000 + size).partition(b" ")[2][:size]
    file.seek(0)
    if not first.strip() and not sample:
        raise RegardError(f"{name}: the file is empty")
    if header:
        return FORMATS["word2vec" if _is_text(sample) else "word2vec-binary"]
    if _is_text(first) and trailing_numbers(first):
        return FORMATS["glove"]
    raise RegardError(f"{name}: unknown format; set format={' or '.join(map(repr, FORMATS))}")


def _is_text(sample: bytes) -> bool:
    """Whether this is (possibly truncated) text; float32 bytes nearly always have control bytes."""
    try:
        return not re.search(r"[\x00-\x08\x0e-\x1f]", utf_8_decode(sample)[0])
    except UnicodeDecodeError:
        return False


def is_number(field: bytes) -> bool:
    """Whether a field is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def trailing_numbers(line: bytes) -> int:
    """The count of numbers at the end of a line; the first field always belongs to the word."""
    fields = line.split()[1:]
    return next(
        (i for i, field in enumerate(reversed(fields)) if not is_number(field)), len(fields)
    )


def excerpt(field: bytes) -> str:
    """Part of a file for an error message: one line, at most 40 characters."""
    text = _decode(field.strip())
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _decode(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")


def _read_header(file: BufferedIOBase, name: str) -> tuple[int, int]:
    line = file.readline(_CHUNK).removeprefix(BOM_UTF8)
    match = _HEADER.fullmatch(line)
    if not match or int(match[2]) == 0:
        raise RegardError(
            f"{name}:1: expected the header 'words dim', two whole numbers; got {excerpt(line)}"
        )
    return int(match[1]), int(match[2])


@np.errstate(over="ignore")  # 1e99 becomes infinity, which is rejected later
def _parse_lines(file: BufferedIOBase, name: str, dim: int, start: int) -> VectorData:
    words, numbers = [], bytearray()
    for number, line in enumerate(file, start):
        word, *fields = (line.removeprefix(BOM_UTF8) if number == 1 else line).rsplit(
            None, dim
        ) or [b""]
        if len(fields) < dim or (len(word.split()) > 1 and trailing_numbers(line) > dim):
            if not line.strip() and not file.read().strip():  # trailing blank lines
                break
            raise RegardError(f"{name}:{number}: {trailing_numbers(line)} numbers instead of {dim}")
        try:
            row = np.array(fields, dtype="<f4")
        except ValueError:
            wrong = next(field for field in fields if not is_number(field))
            raise RegardError(f"{name}:{number}: {excerpt(wrong)} is not a number") from None
        words.append(_decode(word))
        numbers += row.tobytes()
    return VectorData(words, numbers, dim)
