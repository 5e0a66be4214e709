"""A sample of a stream that fits in memory, whatever the stream's length, and is the same each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_CHARACTERS = 16_000_000
MOST_ITEMS = 400_000


class Sample(Generic[T]):
    """Every 2ᵏ-th thing of a stream, k as small as the room allows; and the size of all that went by."""

    def __init__(self, length: Callable[[T], int], characters: int = MOST_CHARACTERS, items: int = MOST_ITEMS) -> None:
        self.kept: list[T] = []
        self.total = 0
        self.characters = 0
        self._length = length
        self._room = characters, items
        self._stride = 1
        self._held = 0

    def add(self, thing: T) -> None:
        """Let one more thing of the stream go by."""
        length = self._length(thing)
        if self.total % self._stride == 0:
            self.kept.append(thing)
            self._held += length
            while len(self.kept) > 1 and (self._held > self._room[0] or len(self.kept) > self._room[1]):
                self.kept = self.kept[::2]
                self._stride *= 2
                self._held = sum(map(self._length, self.kept))
        self.total += 1
        self.characters += length


def thinned(lines: Iterable[str]) -> list[str]:
    """A bounded sample of lines: all of them when they fit."""
    sample: Sample[str] = Sample(len)
    for line in lines:
        sample.add(line)
    return sample.kept
