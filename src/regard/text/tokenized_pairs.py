"""TokenizedPairs: tokenized pairs in a folder, read through memory maps.

For each side the folder has the ids of all texts, concatenated (`source.ids`, two or four bytes
each), the start of each text (`source.offsets`, int64, one entry more than there are pairs), and
`ids.json` with counts and fingerprints.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Int32, Int64

from regard.errors import RegardError

SIDES = ("source", "target")
OFFSET = np.dtype("<i8")
RESIDENT_BYTES = 1 << 26  # read from a file before its pages are released
VERSION = 1

FlatIds = tuple[Int64[np.ndarray, " token"], Int64[np.ndarray, " ends"]]
"""The concatenated ids of some texts, and their offsets."""


class IdsError(RegardError):
    """A folder of ids that cannot be written, or is damaged or outdated."""


class TokenizedPairs:
    """Tokenized pairs: `source(i)` and `target(i)` are the ids of pair i, `counts` is
    `ids.json`."""

    def __init__(self, folder: Path, counts: dict[str, Any]) -> None:
        self.folder = folder
        self.counts = counts
        self._sides = [_Side(folder, name, counts) for name in SIDES]

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], *, fingerprint: Mapping[str, str] | None = None
    ) -> TokenizedPairs:
        """Open a folder; raises if its data do not match `fingerprint`, naming the differences."""
        folder = Path(folder)
        try:
            counts = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
            version = counts["version"]
        except (OSError, ValueError, KeyError, TypeError):
            raise IdsError(
                f"{str(folder)!r} is not a folder of ids: ids.json is missing or incomplete; "
                "tokenize again"
            ) from None
        if version != VERSION:
            raise IdsError(
                f"{str(folder)!r} has format version {version}, expected {VERSION}; remove it "
                "and tokenize again"
            )
        if fingerprint is not None and fingerprint != counts["fingerprint"]:
            stored, names = counts["fingerprint"], {*counts["fingerprint"], *fingerprint}
            changed = sorted(name for name in names if stored.get(name) != fingerprint.get(name))
            raise IdsError(
                f"{str(folder)!r} was made from other data: {', '.join(map(repr, changed))} "
                "changed; remove the folder to tokenize again"
            )
        return cls(folder, counts)

    def __len__(self) -> int:
        return int(self.counts["pairs"])

    def source(self, i: int) -> Int64[np.ndarray, " token"]:
        """The source ids of pair i."""
        return self._sides[0].gather(np.array([self._index(i)]))[0]

    def target(self, i: int) -> Int64[np.ndarray, " token"]:
        """The target ids of pair i."""
        return self._sides[1].gather(np.array([self._index(i)]))[0]

    @property
    def source_lengths(self) -> Int32[np.ndarray, " pair"]:
        """The number of ids of each source."""
        return self._sides[0].lengths

    @property
    def target_lengths(self) -> Int32[np.ndarray, " pair"]:
        """The number of ids of each target."""
        return self._sides[1].lengths

    def gather(self, indices: Int[np.ndarray, " batch"]) -> list[FlatIds]:
        """The concatenated ids and offsets of these pairs, for source and target."""
        return [side.gather(indices) for side in self._sides]

    def _index(self, i: int) -> int:
        if not -len(self) <= i < len(self):
            raise IndexError(f"pair {i} of {len(self):,}")
        return i % len(self)


class _Side:
    """The ids and offsets of one side."""

    def __init__(self, folder: Path, name: str, counts: dict[str, Any]) -> None:
        dtype, tokens = np.dtype(counts["dtype"]), counts[name]["tokens"]
        self._ids = _MappedArray(folder / f"{name}.ids", dtype, tokens)
        self._offsets = _MappedArray(folder / f"{name}.offsets", OFFSET, counts["pairs"] + 1)

    @cached_property
    def lengths(self) -> Int32[np.ndarray, " pair"]:
        """The number of ids of each text; the only array that is kept in memory."""
        offsets = self._offsets.array
        lengths = np.empty(len(offsets) - 1, np.int32)
        for start in range(0, len(lengths), 1 << 20):
            end = start + (1 << 20)
            lengths[start:end] = np.diff(offsets[start : end + 1])
        self._offsets.release()
        return lengths

    def gather(self, indices: Int[np.ndarray, " batch"]) -> FlatIds:
        """The concatenated ids and offsets of these texts."""
        starts = self._offsets.array[indices]
        lengths = self._offsets.array[indices + 1] - starts
        ends = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
        values = self._ids.array[positions].astype(np.int64)
        self._ids.count_read(len(values) * 2 + len(indices) * mmap.PAGESIZE)
        self._offsets.count_read(len(indices) * mmap.PAGESIZE)
        return values, ends


class _MappedArray:
    """A memory-mapped array that releases its pages before they fill the memory."""

    def __init__(self, path: Path, dtype: np.dtype[Any], count: int) -> None:
        expected = count * dtype.itemsize
        try:
            size = path.stat().st_size
        except OSError as error:
            raise IdsError(f"cannot read {str(path)!r}: {error.strerror}; tokenize again") from None
        if size != expected:
            raise IdsError(
                f"{str(path)!r} has {size:,} bytes instead of {expected:,}; tokenize again"
            )
        self._map: mmap.mmap | None = None
        self._resident = 0
        if not size:  # an empty file cannot be mapped
            self.array = np.empty(0, dtype)
            return
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array = np.frombuffer(self._map, dtype)

    def count_read(self, size: int) -> None:
        """Add an estimate of the bytes read, and release the pages if there are many."""
        self._resident += size
        if self._resident > RESIDENT_BYTES:
            self.release()

    def release(self) -> None:
        """Release the pages; they stay in the system's page cache."""
        self._resident = 0
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
