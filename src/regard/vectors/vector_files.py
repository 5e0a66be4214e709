"""Reading and writing files of word vectors: plain or gzipped, checked, written atomically."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
