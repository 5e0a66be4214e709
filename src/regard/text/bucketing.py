"""Plan: which pairs make which batch in an epoch; a pure function of lengths, budget, seed and epoch.

Pairs are shuffled, cut into chunks, sorted by length within each chunk, packed into batches under a token budget, and
the batches are shuffled. So a batch holds like lengths (a backend that must pad pads little), yet meets other company
each epoch. The shuffle is computed, not drawn: nothing depends on a random generator's state or version.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Int32, Int64

from regard.errors import RegardError
from regard.text.shuffle import keyed, shuffled

CHUNK_BATCHES = 512  # lengths within a batch differ by about a 512th of all: most batches have one length a side
CHUNKS = 3  # at least, where the corpus allows: sorted as a whole, rare lengths would meet the same company each epoch
SMALLEST_CHUNK, LARGEST_CHUNK = 1 << 10, 1 << 17


class BatchError(RegardError):
    """Batches that cannot be made as asked."""


@dataclass(frozen=True, eq=False)
class Plan:
    """One epoch: `order` lists the pairs, batch i is `order[starts[i]:starts[i + 1]]`, step s takes batch `steps[s]`.

    `over_long` pairs have a side longer than the limit and are left out.
    """

    order: Int32[np.ndarray, " kept"]
    starts: Int64[np.ndarray, " ends"]
    steps: Int64[np.ndarray, " step"]
    over_long: int

    def __len__(self) -> int:
        return len(self.steps)

    def batch(self, step: int) -> Int64[np.ndarray, " batch"]:
        """The pairs of a step, the short before the long."""
        if not 0 <= step < len(self):
            raise BatchError(f"step {step:,} is not in this epoch of {len(self):,} steps (from 0)")
        which = self.steps[step]
        return self.order[self.starts[which] : self.starts[which + 1]].astype(np.int64)


def plan(
    source_lengths: Int[np.ndarray, " pair"],
    target_lengths: Int[np.ndarray, " pair"],
    *,
    batch_tokens: int,
    seed: int,
    epoch: int,
    limit: int | None = None,
) -> Plan:
    """The batches of an epoch, each of at most `budget` source and target tokens; a longer pair is a batch by itself.

    Pairs with more than `limit` tokens on a side are left out.
    """
    if batch_tokens < 1:
        raise BatchError(f"a batch needs a budget of at least 1 token; got {batch_tokens}")
    if len(source_lengths) >= 1 << 31:
        raise BatchError(f"{len(source_lengths):,} pairs are more than one plan can hold (2³¹); split the corpus")
    kept = _within(source_lengths, target_lengths, limit)
    count = len(source_lengths) if kept is None else len(kept)
    if not count:
        raise BatchError(f"no pair has at most {limit} tokens on each side; raise the limit")
    size = _chunk(source_lengths, target_lengths, batch_tokens)
    key = keyed(seed, epoch)
    order = np.empty(count, np.int32)
    starts: list[int] = [0]
    for start in range(0, count, size):
        places = shuffled(np.arange(start, min(start + size, count), dtype=np.uint64), count, key).astype(np.int64)
        pairs = places if kept is None else kept[places]
        source, target = source_lengths[pairs].astype(np.int64), target_lengths[pairs].astype(np.int64)
        ranks = np.lexsort((source, target, np.maximum(source, target)))
        order[start : start + len(pairs)] = pairs[ranks]
        starts += _packed((source + target)[ranks], batch_tokens, start)
    batches = len(starts) - 1
    steps = shuffled(np.arange(batches, dtype=np.uint64), batches, keyed(seed, epoch, 1)).astype(np.int64)
    return Plan(order, np.array(starts, np.int64), steps, len(source_lengths) - count)


def _within(
    source_lengths: Int[np.ndarray, " pair"], target_lengths: Int[np.ndarray, " pair"], limit: int | None
) -> Int32[np.ndarray, " kept"] | None:
    """The pairs within the limit; None when that is all of them."""
    if limit is None or max(source_lengths.max(initial=0), target_lengths.max(initial=0)) <= limit:
        return None
    return np.flatnonzero((source_lengths <= limit) & (target_lengths <= limit)).astype(np.int32)


def _chunk(
    source_lengths: Int[np.ndarray, " pair"], target_lengths: Int[np.ndarray, " pair"], batch_tokens: int
) -> int:
    """How many pairs are sorted together."""
    pairs = len(source_lengths)
    mean = (source_lengths.sum(dtype=np.int64) + target_lengths.sum(dtype=np.int64)) / pairs
    alike = min(CHUNK_BATCHES * batch_tokens / max(1.0, mean), -(-pairs // CHUNKS))
    return int(np.clip(alike, SMALLEST_CHUNK, LARGEST_CHUNK))


def _packed(tokens: Int64[np.ndarray, " pair"], batch_tokens: int, start: int) -> list[int]:
    """Where batches end when each takes as many pairs in a row as the budget allows, one at least."""
    sums = np.cumsum(tokens).tolist()
    ends, end, spent = [], 0, 0
    while end < len(sums):
        end = max(end + 1, bisect_right(sums, spent + batch_tokens, lo=end))
        spent = sums[end - 1]
        ends.append(start + end)
    return ends
