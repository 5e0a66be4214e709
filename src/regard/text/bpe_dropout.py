"""Respelling: while learning, a piece falls now and then into the two that it was merged from, and they may in turn.

So a text is spelt in other ways each epoch, and small pieces are met in the company of words that are usually written
whole: against learning little text by heart. It is BPE-dropout (Provilkov et al. 2020) from the other end: not merges
that are left out, but merges taken back, so ids on disk are all that is needed. What falls is computed from (seed,
epoch, text, place), whoever reads it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, Int64, UInt64

from regard.text.pairs import Gathered
from regard.text.shuffle import keyed, mixed

NONE = -1
Respelt = tuple[Int64[np.ndarray, " piece"], Int64[np.ndarray, " ends"]]


class Respelling:
    """`halves[id]` are the two pieces an id falls into, NONE where it does not, by `chance`. No text gets more than
    `longest` ids: one that would stays whole."""

    def __init__(self, halves: Int[np.ndarray, "vocabulary 2"], *, chance: float, seed: int, longest: int) -> None:
        self.halves, self.seed, self.longest = halves, seed, longest
        self.below = np.uint64(min(int(chance * 2**64), 2**64 - 1))

    def __call__(self, gathered: Gathered, texts: Int64[np.ndarray, " text"], epoch: int) -> Respelt:
        """The ids of these texts, spelt as they are in this epoch, and where each starts, and the end."""
        fall = self._fallen(gathered, texts, epoch, np.ones(len(texts), bool))
        long = np.diff(fall[1]) > self.longest
        return self._fallen(gathered, texts, epoch, ~long) if long.any() else fall

    def _fallen(
        self, gathered: Gathered, texts: Int64[np.ndarray, " text"], epoch: int, may: Bool[np.ndarray, " text"]
    ) -> Respelt:
        ids, ends = gathered
        lengths = np.diff(ends)
        owners = np.repeat(np.arange(len(texts)), lengths)
        places = (np.arange(len(ids)) - ends[owners]).astype(np.uint64)
        fate = mixed(mixed(texts.astype(np.uint64)[owners] + keyed(self.seed, epoch), 0) + places, 1)
        fresh = np.flatnonzero(may[owners])  # what has not been asked yet
        while len(falling := fresh[self._falls(ids[fresh], fate[fresh])]):
            counts = np.ones(len(ids), np.int64)
            counts[falling] = 2
            halves, parent = self.halves[ids[falling]], fate[falling]
            ids, owners, fate = (np.repeat(row, counts) for row in (ids, owners, fate))
            first = falling + np.arange(len(falling))  # where the halves of a piece come to stand
            ids[first], ids[first + 1] = halves[:, 0], halves[:, 1]
            fate[first], fate[first + 1] = mixed(parent, 2), mixed(parent, 3)
            fresh = np.stack([first, first + 1], 1).ravel()
        return ids, np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(texts)))])

    def _falls(
        self, ids: Int64[np.ndarray, " token"], fate: UInt64[np.ndarray, " token"]
    ) -> Bool[np.ndarray, " token"]:
        return (self.halves[ids, 0] != NONE) & (mixed(fate, 4) < self.below)
