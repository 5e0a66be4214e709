"""Ids on disk: a corpus of any size tokenised once into a folder, and read back without loading it.

The folder holds, for each side, the ids of all texts end to end (`source.ids`, two or four bytes each) and where each
text starts (`source.offsets`, int64, one more than there are pairs); and `ids.json` with counts and fingerprints.
It appears whole or not at all: it is written as `<folder>.partial` and renamed.
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

from regard.disk import to_disk, write_whole
from regard.text.pairs import OFFSET, SIDES, VERSION, IdsError, Pairs
from regard.text.tokenizers import UNKNOWN, Tokenizer
from regard.text.workers import Block, encoded

BLOCK_PAIRS, BLOCK_CHARACTERS = 4_096, 1 << 19
MOST_LOOKED_AT = 1_000  # texts with unknown symbols: enough to name the symbols, too few to slow anything down
MOST_NAMED = 50
Folder = str | os.PathLike[str]


def tokenise(
    pairs: Iterable[tuple[str, str]],
    source: Tokenizer,
    target: Tokenizer,
    folder: Folder,
    *,
    fingerprint: Mapping[str, str] | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Pairs:
    """The ids of all pairs, written to `folder`; if they are there already, from the same data, they are only opened.

    `fingerprint` names what the pairs come from (`Corpus.fingerprint()`); the tokenisers are added to it. `progress`
    is told from time to time how many pairs are done.
    """
    folder = Path(folder)
    prints = {
        **(fingerprint or {}),
        "source tokeniser": source.fingerprint,
        "target tokeniser": target.fingerprint,
    }
    if folder.exists():
        return Pairs.open(folder, fingerprint=prints)
    partial = folder.with_name(folder.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # what a killed run left
        partial.mkdir(parents=True)
        _write(partial, pairs, source, target, prints, workers, progress)
        partial.rename(folder)
        to_disk(folder.parent)
    except OSError as error:
        raise IdsError(f"cannot write ids to {str(folder)!r}: {error.strerror}; nothing was left behind") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Pairs.open(folder)


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
    tallies = [_Tally(folder, name, tokenizer, dtype) for name, tokenizer in zip(SIDES, (source, target), strict=True)]
    done = 0
    try:
        for block, answer in encoded(_blocks(pairs), source, target, dtype.str, workers=workers):
            for tally, texts, (ids, lengths) in zip(tallies, block, answer, strict=True):
                tally.add(texts, ids, np.frombuffer(lengths, np.int64))
            done += len(block[0])
            if progress is not None:
                progress(done)
    finally:
        for tally in tallies:
            tally.close()
    if not done:
        raise IdsError("there are no pairs to tokenise")
    counts = {"version": VERSION, "pairs": done, "dtype": dtype.str, "fingerprint": dict(prints)}
    counts |= {name: tally.counts() for name, tally in zip(SIDES, tallies, strict=True)}
    write_whole(folder / "ids.json", json.dumps(counts, indent=2, ensure_ascii=False))


class _Tally:
    """One side on its way to disk, and what is counted on the way."""

    def __init__(self, folder: Path, name: str, tokenizer: Tokenizer, dtype: np.dtype[Any]) -> None:
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._ids = open(folder / f"{name}.ids", "wb")  # noqa: SIM115 (closed by close)
        self._offsets = open(folder / f"{name}.offsets", "wb")  # noqa: SIM115
        self._offsets.write(np.zeros(1, OFFSET).tobytes())
        self.tokens = self.longest = self.unknown = self._looked = 0
        self.symbols = Counter[str]()

    def add(self, texts: list[str], ids: bytes, lengths: Int64[np.ndarray, " text"]) -> None:
        """The ids of these texts, which follow those before."""
        ends = np.cumsum(lengths)
        self._ids.write(ids)
        self._offsets.write((ends + self.tokens).astype(OFFSET).tobytes())
        places = np.flatnonzero(np.frombuffer(ids, self._dtype) == UNKNOWN)
        for text in np.unique(np.searchsorted(ends, places, side="right"))[: MOST_LOOKED_AT - self._looked]:
            self.symbols.update(self._tokenizer.unknown(texts[text]))
            self._looked += 1
        self.unknown += len(places)
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self.tokens += int(ends[-1])

    def counts(self) -> dict[str, Any]:
        """For ids.json; `symbols` are the unknown ones that were looked at, the frequent first."""
        symbols = dict(self.symbols.most_common(MOST_NAMED))
        return {"tokens": self.tokens, "longest": self.longest, "unknown": self.unknown, "symbols": symbols}

    def close(self) -> None:
        """Everything on the disk before the folder gets its name."""
        for file in (self._ids, self._offsets):
            if not file.closed:
                file.flush()
                os.fsync(file.fileno())
                file.close()


def _blocks(pairs: Iterable[tuple[str, str]]) -> Iterator[Block]:
    """Pairs in blocks that are large enough to be worth sending and small enough to hold many."""
    sources: list[str] = []
    targets: list[str] = []
    size = 0
    for source, target in pairs:
        sources.append(source)
        targets.append(target)
        size += len(source) + len(target)
        if len(sources) == BLOCK_PAIRS or size > BLOCK_CHARACTERS:
            yield sources, targets
            sources, targets, size = [], [], 0
    if sources:
        yield sources, targets
