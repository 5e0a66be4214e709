"""Tokenization of a corpus of any size into a folder of ids (see tokenized_pairs).

The folder is created atomically: it is written as `<folder>.partial` and renamed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from regard.checksums import BlockChecksums, seal
from regard.disk import fsync_path, write_atomically
from regard.text.tokenized_pairs import (
    OFFSET,
    SIDES,
    VERSION,
    DamagedIds,
    IdsError,
    TokenizedPairs,
)
from regard.text.tokenizer_workers import Block, Limit, encode_blocks
from regard.text.tokenizers import Tokenizer

BLOCK_PAIRS = 4_096
BLOCK_CHARACTERS = 1 << 19
MAX_UNKNOWN_TEXTS = 1_000  # searched for unknown symbols: enough to list them, and fast
MAX_UNKNOWN_SYMBOLS = 50
ID_FILES = {"ids.json", *(f"{side}.{kind}" for side in SIDES for kind in ("ids", "offsets"))}
Folder = str | os.PathLike[str]


def tokenize_corpus(
    pairs: Iterable[tuple[str, str]],
    source: Tokenizer,
    target: Tokenizer,
    folder: Folder,
    *,
    fingerprint: Mapping[str, str] | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    report: Callable[[str], None] | None = None,
) -> TokenizedPairs:
    """Tokenize all pairs into `folder`, or open it if it exists and was made from the same data.

    `fingerprint` identifies the data (`Corpus.fingerprint()`); the tokenizers are added to it.
    `progress` is called regularly with the number of pairs done. An existing folder is verified; a
    damaged one is made again, after `report` was called with the reason.
    """
    folder = Path(folder)
    prints = {
        **(fingerprint or {}),
        "source tokenizer": source.fingerprint,
        "target tokenizer": target.fingerprint,
    }
    if folder.exists():
        try:
            return TokenizedPairs.open(folder, fingerprint=prints, verify=True)
        except DamagedIds as error:
            _remove_ids(folder, error)
            if report is not None:
                report(f"{str(folder)!r}: {error.reason}; tokenizing again")
    partial = folder.with_name(folder.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # from a killed run
        partial.mkdir(parents=True)
        _write(partial, pairs, source, target, prints, workers, progress)
        partial.rename(folder)
        fsync_path(folder.parent)
    except OSError as error:
        raise IdsError(
            f"cannot write ids to {str(folder)!r}: {error.strerror}; partial files were removed"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return TokenizedPairs.open(folder)


def _write(
    folder: Path,
    pairs: Iterable[tuple[str, str]],
    source: Tokenizer,
    target: Tokenizer,
    prints: Mapping[str, str],
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> None:
    dtype = np.dtype("<u2" if max(len(source), len(target)) <= 1 << 16 else "<u4")
    both = zip(SIDES, (source, target), strict=True)
    writers = [_SideWriter(folder, name, tokenizer, dtype) for name, tokenizer in both]
    libraries = source.library, target.library
    limits = _limit(source), _limit(target)
    done = 0
    try:
        for block, encoded in encode_blocks(
            _blocks(pairs), libraries, dtype.str, limits=limits, workers=workers
        ):
            for writer, texts, (ids, lengths) in zip(writers, block, encoded, strict=True):
                writer.add(texts, ids, np.frombuffer(lengths, np.int64))
            done += len(block[0])
            if progress is not None:
                progress(done)
    finally:
        for writer in writers:
            writer.close()
    if not done:
        raise IdsError("there are no pairs to tokenize")
    counts = {"version": VERSION, "pairs": done, "dtype": dtype.str, "fingerprint": dict(prints)}
    counts |= {name: writer.counts() for name, writer in zip(SIDES, writers, strict=True)}
    counts["checksums"] = {name: sums for one in writers for name, sums in one.checksums().items()}
    write_atomically(folder / "ids.json", json.dumps(seal(counts), ensure_ascii=False))


def _remove_ids(folder: Path, error: DamagedIds) -> None:
    """Remove a damaged folder of ids; raises if it has other files."""
    if not folder.is_dir() or {path.name for path in folder.iterdir()} - ID_FILES:
        what = f"{str(folder)!r} has other files and is not a folder of ids ({error.reason})"
        raise IdsError(f"{what}; use another folder") from None
    shutil.rmtree(folder)


class _SideWriter:
    """Writes the ids and offsets of one side and counts tokens and unknown symbols."""

    def __init__(self, folder: Path, name: str, tokenizer: Tokenizer, dtype: np.dtype[Any]) -> None:
        self._tokenizer = tokenizer
        self._unknown = -1 if tokenizer.unknown is None else tokenizer.unknown
        self._dtype = dtype
        self._ids = _CheckedFile(folder / f"{name}.ids")
        self._offsets = _CheckedFile(folder / f"{name}.offsets")
        self._offsets.write(np.zeros(1, OFFSET).tobytes())
        self.tokens = self.longest = self.unknown = self._searched = 0
        self.symbols = Counter[str]()

    def add(self, texts: list[str], ids: bytes, lengths: Int64[np.ndarray, " text"]) -> None:
        """Append the ids of these texts."""
        ends = np.cumsum(lengths)
        self._ids.write(ids)
        self._offsets.write((ends + self.tokens).astype(OFFSET).tobytes())
        unknown = np.flatnonzero(np.frombuffer(ids, self._dtype) == self._unknown)
        affected = np.unique(np.searchsorted(ends, unknown, side="right"))
        for text in affected[: MAX_UNKNOWN_TEXTS - self._searched]:
            self.symbols.update(self._tokenizer.unknown_symbols(texts[text]))
            self._searched += 1
        self.unknown += len(unknown)
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self.tokens += int(ends[-1])

    def counts(self) -> dict[str, Any]:
        """The entry in ids.json; `symbols` lists frequent unknown symbols of the searched texts."""
        symbols = dict(self.symbols.most_common(MAX_UNKNOWN_SYMBOLS))
        sizes = {"tokens": self.tokens, "longest": self.longest, "unknown": self.unknown}
        return {**sizes, "symbols": symbols}

    def checksums(self) -> dict[str, list[int]]:
        """The checksums of both files, by name."""
        return {file.path.name: file.sums.values() for file in (self._ids, self._offsets)}

    def close(self) -> None:
        """Close the files, flushed to the storage device before the folder is renamed."""
        for file in (self._ids, self._offsets):
            file.close()


class _CheckedFile:
    """A file to write, with the checksums of what is written."""

    def __init__(self, path: Path) -> None:
        self.path, self.sums = path, BlockChecksums()
        self._file = open(path, "wb")  # noqa: SIM115 (closed by close)

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.sums.update(data)

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def _limit(tokenizer: Tokenizer) -> Limit | None:
    return (len(tokenizer), tokenizer.unknown) if tokenizer.is_foreign else None


def _blocks(pairs: Iterable[tuple[str, str]]) -> Iterator[Block]:
    """Blocks of pairs: large enough to amortise the transfer to a worker, small enough to queue."""
    sources: list[str] = []
    targets: list[str] = []
    size = 0
    for source, target in pairs:
        sources.append(source)
        targets.append(target)
        size += len(source) + len(target)
        if len(sources) == BLOCK_PAIRS or size > BLOCK_CHARACTERS:
            yield sources, targets
            sources, targets = [], []
            size = 0
    if sources:
        yield sources, targets
