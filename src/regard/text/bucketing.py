"""Length bucketing: the batches of an epoch, as a function of lengths, batch size, seed and epoch.

Pairs are shuffled, split into chunks, sorted by length within each chunk and packed into batches of
a given number of tokens, and the batches are shuffled. A batch therefore has similar lengths (a
backend that pads wastes little) but different pairs in each epoch. The shuffle is a keyed
permutation and does not depend on the state or version of a random generator.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Int32, Int64, UInt64

from regard.errors import RegardError

CHUNK_BATCHES = 512  # most batches then have one length per side
MIN_CHUNKS = 3  # if sorted as a whole, rare lengths would meet the same pairs in every epoch
SMALLEST_CHUNK = 1 << 10
LARGEST_CHUNK = 1 << 17
PLACE_BITS = LARGEST_CHUNK.bit_length() - 1  # of a place in a chunk
LENGTH_BITS = (63 - PLACE_BITS) // 3
MASK = (1 << 64) - 1
ROUNDS = 4
CACHED = 1 << 14  # integers permuted at once, so that they stay in the cache of a core
MANY_PAIRS = 40  # per batch
Lengths = Int[np.ndarray, " pair"]


class BatchError(RegardError):
    """Batches that cannot be made as requested."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """The batches of an epoch: batch i is `order[starts[i]:starts[i + 1]]`, step s is batch
    `steps[s]`. `too_long` counts the skipped pairs with a side over `max_tokens`.
    """

    order: Int32[np.ndarray, " kept"]
    starts: Int64[np.ndarray, " ends"]
    steps: Int64[np.ndarray, " step"]
    too_long: int

    def __len__(self) -> int:
        return len(self.steps)

    def batch(self, step: int) -> Int64[np.ndarray, " batch"]:
        """The pairs of a step, sorted by length."""
        if not 0 <= step < len(self):
            raise BatchError(f"step {step:,} is not in this epoch of {len(self):,} steps (from 0)")
        batch = self.steps[step]
        return self.order[self.starts[batch] : self.starts[batch + 1]].astype(np.int64)


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    *,
    batch_tokens: int,
    seed: int,
    epoch: int,
    max_tokens: int | None = None,
) -> BatchPlan:
    """The batches of an epoch, each with at most `batch_tokens` source and target tokens.

    A pair with more is a batch by itself. Pairs with more than `max_tokens` on a side are skipped.
    """
    if batch_tokens < 1:
        raise BatchError(f"batch_tokens must be at least 1; got {batch_tokens}")
    if len(source_lengths) >= 1 << 31:
        count = len(source_lengths)
        raise BatchError(f"{count:,} pairs are more than one plan supports (2³¹); split the corpus")
    kept = _within_limit(source_lengths, target_lengths, max_tokens)
    count = len(source_lengths) if kept is None else len(kept)
    if not count:
        raise BatchError(f"no pair has at most {max_tokens} tokens on each side; raise the limit")
    size = _chunk_size(source_lengths, target_lengths, batch_tokens)
    key = hash_key(seed, epoch)
    order = np.empty(count, np.int32)
    starts = array("q", [0])  # Python integers would take as much memory as the pairs
    for start in range(0, count, size):
        chunk = np.arange(start, min(start + size, count), dtype=np.uint64)
        pairs = permute(chunk, count, key).astype(np.int64)
        if kept is not None:
            pairs = kept[pairs]
        source = source_lengths[pairs].astype(np.int64)
        target = target_lengths[pairs].astype(np.int64)
        ranks = sort_by_length(source, target)
        order[start : start + len(pairs)] = pairs[ranks]
        starts.extend(_batch_ends((source + target)[ranks], batch_tokens, start))
    steps = np.empty(len(starts) - 1, np.int64)
    key = hash_key(seed, epoch, 1)
    for start in range(0, len(steps), LARGEST_CHUNK):
        chunk = np.arange(start, min(start + LARGEST_CHUNK, len(steps)), dtype=np.uint64)
        steps[start : start + LARGEST_CHUNK] = permute(chunk, len(steps), key)
    return BatchPlan(order, np.array(starts, np.int64), steps, len(source_lengths) - count)


def sort_by_length(
    source: Int64[np.ndarray, " pair"], target: Int64[np.ndarray, " pair"]
) -> Int64[np.ndarray, " pair"]:
    """The places of these pairs in order of the longer side, then target, source and place.

    Lengths and place fit in 63 bits unless a length is huge, and sorting one array of integers
    takes a third of the time of `lexsort`.
    """
    longest = np.maximum(source, target)
    if len(source) > LARGEST_CHUNK or int(longest.max(initial=0)) >> LENGTH_BITS:
        return np.lexsort((source, target, longest))
    keys = longest
    for part, bits in ((target, LENGTH_BITS), (source, LENGTH_BITS)):
        keys = (keys << bits) | part
    keys = (keys << PLACE_BITS) | np.arange(len(source))
    keys.sort()
    return keys & (LARGEST_CHUNK - 1)


def _within_limit(
    source_lengths: Lengths, target_lengths: Lengths, max_tokens: int | None
) -> Int32[np.ndarray, " kept"] | None:
    """The pairs with at most `max_tokens` per side; None if all have."""
    longest = max(source_lengths.max(initial=0), target_lengths.max(initial=0))
    if max_tokens is None or longest <= max_tokens:
        return None
    kept = (source_lengths <= max_tokens) & (target_lengths <= max_tokens)
    return np.flatnonzero(kept).astype(np.int32)


def _chunk_size(source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int) -> int:
    """The number of pairs that are sorted together."""
    pairs = len(source_lengths)
    tokens = source_lengths.sum(dtype=np.int64) + target_lengths.sum(dtype=np.int64)
    size = min(CHUNK_BATCHES * batch_tokens / max(1.0, tokens / pairs), -(-pairs // MIN_CHUNKS))
    return int(np.clip(size, SMALLEST_CHUNK, LARGEST_CHUNK))


def _batch_ends(tokens: Int64[np.ndarray, " pair"], batch_tokens: int, start: int) -> list[int]:
    """The ends of batches that take as many consecutive pairs as fit, at least one."""
    sums = np.cumsum(tokens)
    ends: list[int] = []
    end = spent = 0
    if sums[-1] < len(sums) / MANY_PAIRS * batch_tokens:  # fewer searches than Python integers
        while end < len(sums):
            end = max(end + 1, int(sums.searchsorted(spent + batch_tokens, side="right")))
            spent = int(sums[end - 1])
            ends.append(start + end)
        return ends
    listed = sums.tolist()
    while end < len(listed):
        end = max(end + 1, bisect_right(listed, spent + batch_tokens, lo=end))
        spent = listed[end - 1]
        ends.append(start + end)
    return ends


def permute(
    indices: UInt64[np.ndarray, " index"], count: int, key: np.uint64
) -> UInt64[np.ndarray, " index"]:
    """The images of indices under a permutation of 0 … count − 1 selected by `key`.

    A Feistel network on the next power of four (Luby and Rackoff 1988); results outside the range
    are mapped again until they are inside.
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    images = np.empty_like(indices)
    for start in range(0, len(indices), CACHED):
        part = _encrypt(indices[start : start + CACHED], half, key)
        outside = np.flatnonzero(part >= count)
        while len(outside):
            again = _encrypt(part[outside], half, key)
            part[outside] = again
            outside = outside[again >= count]
        images[start : start + CACHED] = part
    return images


def _encrypt(
    values: UInt64[np.ndarray, " index"], half: np.uint64, key: np.uint64
) -> UInt64[np.ndarray, " index"]:
    """The Feistel network: each round mixes one half of the bits into the other."""
    low = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & low
    for number in range(ROUNDS):
        mixed = splitmix64(right + key, number)
        mixed &= low
        mixed ^= left
        left, right = right, mixed
    return (left << half) | right


def hash_key(*numbers: int) -> np.uint64:
    """A key from several numbers."""
    key = np.zeros(1, np.uint64)
    for number in numbers:
        key = splitmix64(key, number)
    return np.uint64(key[0])


def splitmix64(values: UInt64[np.ndarray, " index"], salt: int) -> UInt64[np.ndarray, " index"]:
    """splitmix64 (Steele et al. 2014): each result bit depends on all bits of value and salt."""
    bits = values + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 & MASK)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
