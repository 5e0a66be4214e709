"""TokenizedPairs: tokenized pairs in a folder, read through memory maps.

For each side the folder has the ids of all texts, concatenated (`source.ids`, two or four bytes
each), the start of each text (`source.offsets`, int64, one entry more than there are pairs), and
`ids.json` with counts, fingerprints and checksums.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Int32, Int64

from regard.checksums import find_damage, is_intact, unseal
from regard.errors import RegardError

SIDES = ("source", "target")
OFFSET = np.dtype("<i8")
RESIDENT_BYTES = 1 << 25  # read from a larger file before its pages are released
FAULT_BYTES = 1 << 18  # mapped at a page fault, with neighbours that the system has in its cache
VERSION = 1

FlatIds = tuple[Int64[np.ndarray, " token"], Int64[np.ndarray, " ends"]]
"""The concatenated ids of some texts, and their offsets."""


class IdsError(RegardError):
    """A folder of ids that cannot be read or written, or was made from other data."""


class DamagedIds(IdsError):
    """A folder of ids that is damaged, incomplete or outdated; tokenization makes it again."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"{str(folder)!r} cannot be used: {reason}; run the same `regard train` command to "
            "make it again"
        )
        self.reason = reason


class TokenizedPairs:
    """Tokenized pairs: `source(i)` and `target(i)` are the ids of pair i, `counts` is
    `ids.json`."""

    def __init__(self, folder: Path, counts: dict[str, Any]) -> None:
        self.folder = folder
        self.counts = counts
        self._sides = [_Side(folder, name, counts) for name in SIDES]

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        fingerprint: Mapping[str, str] | None = None,
        verify: bool = False,
    ) -> TokenizedPairs:
        """Open a folder; raises if its data do not match `fingerprint`, naming the differences.

        With `verify`, all data are read and compared with their checksums.
        """
        folder = Path(folder)
        counts = _read_counts(folder)
        if fingerprint is not None and fingerprint != counts["fingerprint"]:
            stored, names = counts["fingerprint"], {*counts["fingerprint"], *fingerprint}
            changed = sorted(name for name in names if stored.get(name) != fingerprint.get(name))
            raise IdsError(
                f"{str(folder)!r} was made from other data: {', '.join(map(repr, changed))} "
                "changed; start over with --restart, or use another folder"
            )
        pairs = cls(folder, counts)
        if verify:
            pairs.verify()
        return pairs

    def verify(self) -> None:
        """Compare all data with their checksums; raises where they differ.

        Folders of older versions have no checksums and are accepted.
        """
        for name, expected in self.counts.get("checksums", {}).items():
            with _reading(self.folder, name):
                place = find_damage(self.folder / name, expected)
            if place is not None:
                raise DamagedIds(self.folder, f"{name} is damaged at byte {place:,} or after it")

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


@contextmanager
def _reading(folder: Path, name: str) -> Iterator[None]:
    """Turn errors of reading a file into one line; a missing file is damage."""
    try:
        yield
    except FileNotFoundError:
        raise DamagedIds(folder, f"{name} is missing") from None
    except OSError as error:
        path = str(folder / name)
        raise IdsError(f"cannot read {path!r}: {error.strerror}") from None


def _read_counts(folder: Path) -> dict[str, Any]:
    """The values of ids.json."""
    with _reading(folder, "ids.json"):
        stored = (folder / "ids.json").read_bytes()
    try:
        counts: dict[str, Any] = json.loads(stored)
        version, intact = counts["version"], is_intact(counts)
    except (ValueError, KeyError, TypeError):
        raise DamagedIds(folder, "ids.json is damaged") from None
    if not intact:
        raise DamagedIds(folder, "ids.json is damaged")
    if version != VERSION:
        raise DamagedIds(folder, f"it has format version {version}, not {VERSION}")
    return unseal(counts)


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
            self._offsets.count_read(OFFSET.itemsize << 20)
        self._offsets.release()
        return lengths

    def gather(self, indices: Int[np.ndarray, " batch"]) -> FlatIds:
        """The concatenated ids and offsets of these texts."""
        starts = self._offsets.array[indices]
        lengths = self._offsets.array[indices + 1] - starts
        ends = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
        values = self._ids.array[positions].astype(np.int64)
        self._ids.count_read(len(values) * 2 + len(indices) * FAULT_BYTES)
        self._offsets.count_read(len(indices) * FAULT_BYTES)
        return values, ends


class _MappedArray:
    """A memory-mapped array that releases its pages before they fill the memory."""

    def __init__(self, path: Path, dtype: np.dtype[Any], count: int) -> None:
        expected = count * dtype.itemsize
        with _reading(path.parent, path.name):
            size = path.stat().st_size
        if size != expected:
            what = f"{path.name} has {size:,} bytes instead of {expected:,}"
            raise DamagedIds(path.parent, what)
        self._map: mmap.mmap | None = None
        self._resident = 0
        if not size:  # an empty file cannot be mapped
            self.array = np.empty(0, dtype)
            return
        with _reading(path.parent, path.name), open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array = np.frombuffer(self._map, dtype)

    def count_read(self, size: int) -> None:
        """Add an estimate of the bytes read, and release the pages if there are many."""
        self._resident += size
        if min(self._resident, self.array.nbytes) > RESIDENT_BYTES:
            self.release()

    def release(self) -> None:
        """Release the pages; they stay in the system's page cache."""
        self._resident = 0
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
