"""Pairs: tokenised pairs in a folder, mapped into memory page by page and let go of again."""

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
RESIDENT = 1 << 26  # bytes read from a file before its pages are handed back
VERSION = 1


Gathered = tuple[Int64[np.ndarray, " token"], Int64[np.ndarray, " ends"]]


class IdsError(RegardError):
    """A folder of ids that cannot be written, or is not what it should be."""


class Pairs:
    """Tokenised pairs: `source(i)` and `target(i)` are the ids of pair i. `counts` is what `ids.json` says."""

    def __init__(self, folder: Path, counts: dict[str, Any]) -> None:
        self.folder = folder
        self.counts = counts
        self._sides = [Side(folder, name, counts) for name in SIDES]

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, fingerprint: Mapping[str, str] | None = None) -> Pairs:
        """The pairs in a folder; when they come from other data than `fingerprint`, the error names the difference."""
        folder = Path(folder)
        try:
            counts = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
            version = counts["version"]
        except (OSError, ValueError, KeyError, TypeError):
            raise IdsError(f"{str(folder)!r} is no folder of ids: it has no whole ids.json; tokenise again") from None
        if version != VERSION:
            raise IdsError(f"{str(folder)!r} is of version {version}, this is {VERSION}; remove it and tokenise again")
        if fingerprint is not None and fingerprint != counts["fingerprint"]:
            was = counts["fingerprint"]
            changed = sorted(name for name in {*was, *fingerprint} if was.get(name) != fingerprint.get(name))
            raise IdsError(
                f"{str(folder)!r} was made from other data: {', '.join(map(repr, changed))} changed since; "
                f"remove the folder to tokenise again"
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
        """How many ids each source has."""
        return self._sides[0].lengths

    @property
    def target_lengths(self) -> Int32[np.ndarray, " pair"]:
        """How many ids each target has."""
        return self._sides[1].lengths

    def gather(self, indices: Int[np.ndarray, " batch"]) -> list[Gathered]:
        """For source and target, the ids of these pairs end to end and where each starts, and the end."""
        return [side.gather(indices) for side in self._sides]

    def _index(self, i: int) -> int:
        if not -len(self) <= i < len(self):
            raise IndexError(f"pair {i} of {len(self):,}")
        return i % len(self)


class Side:
    """The ids of one side in two files: all of them end to end, and where each text starts."""

    def __init__(self, folder: Path, name: str, counts: dict[str, Any]) -> None:
        self._ids = _Mapped(folder / f"{name}.ids", np.dtype(counts["dtype"]), counts[name]["tokens"])
        self._offsets = _Mapped(folder / f"{name}.offsets", OFFSET, counts["pairs"] + 1)

    @cached_property
    def lengths(self) -> Int32[np.ndarray, " pair"]:
        """How many ids each text has; the one thing that is held in memory."""
        offsets = self._offsets.array
        lengths = np.empty(len(offsets) - 1, np.int32)
        for start in range(0, len(lengths), 1 << 20):
            lengths[start : start + (1 << 20)] = np.diff(offsets[start : start + (1 << 20) + 1])
        self._offsets.release()
        return lengths

    def gather(self, indices: Int[np.ndarray, " batch"]) -> Gathered:
        """The ids of these texts end to end and where each starts, and the end."""
        starts = self._offsets.array[indices]
        lengths = self._offsets.array[indices + 1] - starts
        ends = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
        values = self._ids.array[places].astype(np.int64)
        self._ids.touched(len(values) * 2 + len(indices) * mmap.PAGESIZE)
        self._offsets.touched(len(indices) * mmap.PAGESIZE)
        return values, ends


class _Mapped:
    """A file as an array. Its pages come when touched; they are given back before they fill the memory."""

    def __init__(self, path: Path, dtype: np.dtype[Any], count: int) -> None:
        try:
            size = path.stat().st_size
        except OSError as error:
            raise IdsError(f"cannot read {str(path)!r}: {error.strerror}; tokenise again") from None
        if size != count * dtype.itemsize:
            raise IdsError(f"{str(path)!r} has {size:,} bytes instead of {count * dtype.itemsize:,}; tokenise again")
        self._map: mmap.mmap | None = None
        self._touched = 0
        if not size:  # an empty file cannot be mapped
            self.array = np.empty(0, dtype)
            return
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array = np.frombuffer(self._map, dtype)

    def touched(self, size: int) -> None:
        """Note that about so many bytes came in; enough of them are sent out again."""
        self._touched += size
        if self._touched > RESIDENT:
            self.release()

    def release(self) -> None:
        """Give the pages back to the system, which still has them cached."""
        self._touched = 0
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
