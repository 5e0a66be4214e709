"""TrainingSources: hashes of the sources a model was trained on, to tell seen from unseen ones.

At most MAX_HASHES are kept: those with the lowest 64-bit hashes, so a source can be checked if its
hash is not above the highest kept one. No text can be recovered from them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import UInt64
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from regard.bundle.manifest import invalid_file
from regard.bundle.weights_header import read_header
from regard.errors import RegardError
from regard.text.heldout import hash_source

MAX_HASHES = 1 << 17  # 1 MiB
Hashes = UInt64[np.ndarray, " source"]


P = TypeVar("P", bound="tuple[str, ...]")


@dataclass(frozen=True, eq=False)
class TrainingSources:
    """Sorted hashes of training sources. `complete`: no hash was left out."""

    hashes: Hashes
    complete: bool
    seed: int

    def contains(self, source: str) -> bool | None:
        """Whether the model was trained on this source; None if its hash was not kept."""
        hashed = np.uint64(hash_source(source, self.seed))
        index = int(np.searchsorted(self.hashes, hashed))
        if index == len(self.hashes):
            return False if self.complete else None
        return bool(self.hashes[index] == hashed)

    @property
    def checksum(self) -> int:
        """A CRC-32 of everything."""
        return zlib.crc32(
            self.hashes.tobytes(), zlib.crc32(f"{self.complete} {self.seed}".encode())
        )

    def save(self, path: Path) -> None:
        """Write the hashes as a safetensors file."""
        metadata = {"complete": str(self.complete).lower(), "seed": str(self.seed)}
        save_file({"hashes": self.hashes}, path, metadata=metadata)

    @classmethod
    def load(cls, path: Path) -> TrainingSources:
        """Read what `save` wrote."""
        try:
            stored = read_header(path)
            found = {name: (one.dtype, len(one.shape)) for name, one in stored.tensors.items()}
            seed = stored.metadata["seed"]
            if found != {"hashes": ("U64", 1)} or len(seed) > 20:
                raise ValueError("it has other tensors")
            with safe_open(path, framework="numpy") as file:
                hashes = file.get_tensor("hashes")
            return cls(hashes, stored.metadata["complete"] == "true", int(seed))
        except (SafetensorError, RegardError, KeyError, ValueError, OSError) as error:
            raise invalid_file(path, f"it has no hashes ({error})") from None


class SourceCollector:
    """Collects the hashes of a stream of pairs in bounded memory."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._hashes = np.empty(0, np.uint64)
        self._pending: list[int] = []

    def watch(self, pairs: Iterable[P]) -> Iterator[P]:
        """Pass the pairs through and collect the hashes of their sources."""
        for pair in pairs:
            self._pending.append(hash_source(pair[0], self.seed))
            if len(self._pending) >= MAX_HASHES:
                self._merge()
            yield pair

    def sources(self) -> TrainingSources:
        """The hashes collected so far."""
        self._merge()
        complete = len(self._hashes) <= MAX_HASHES
        return TrainingSources(self._hashes[:MAX_HASHES], complete, self.seed)

    def _merge(self) -> None:
        pending = np.array(self._pending, np.uint64)
        self._pending = []
        # one more than is kept shows that some were left out
        self._hashes = np.union1d(self._hashes, pending)[: MAX_HASHES + 1]
