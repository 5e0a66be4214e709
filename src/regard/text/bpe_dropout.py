"""BPE-dropout (Provilkov et al. 2020) on ids: random merges are undone while training.

A token is split at random into the two tokens it was merged from, and these may be split in turn,
so a text is segmented differently in each epoch. This regularises training on little text. Undoing
merges, instead of omitting them, needs only the ids on disk. The result is a pure function of
(seed, epoch, text, position).
"""

from __future__ import annotations

import json

import numpy as np
from jaxtyping import Bool, Int, Int64, UInt64

from regard.text.bucketing import hash_key, splitmix64
from regard.text.tokenized_pairs import FlatIds
from regard.text.tokenizers import Tokenizer

NO_MERGE = -1
SplitIds = tuple[Int64[np.ndarray, " part"], Int64[np.ndarray, " ends"]]


def merge_parts(tokenizer: Tokenizer) -> Int64[np.ndarray, "vocabulary 2"]:
    """The two tokens from which each bpe token was merged; NO_MERGE for tokens without a merge."""
    parts = np.full((len(tokenizer), 2), NO_MERGE)
    merges = json.loads(tokenizer.library.to_str())["model"].get("merges", [])
    id_of = tokenizer.library.token_to_id
    for pair in reversed(merges):  # of several merges of one token, the first applies
        parts[id_of("".join(pair))] = [id_of(part) for part in pair]
    return parts


class BpeDropout:
    """Splits tokens with a given `probability`; `merge_parts[id]` are the two parts of a token
    (NO_MERGE: none). A text that would exceed `max_tokens` ids is not changed."""

    def __init__(
        self,
        merge_parts: Int[np.ndarray, "vocabulary 2"],
        *,
        probability: float,
        seed: int,
        max_tokens: int,
    ) -> None:
        self.merge_parts = merge_parts
        self.seed = seed
        self.max_tokens = max_tokens
        self.threshold = np.uint64(min(int(probability * 2**64), 2**64 - 1))

    def __call__(self, ids: FlatIds, texts: Int64[np.ndarray, " text"], epoch: int) -> SplitIds:
        """The ids and offsets of these texts, segmented for this epoch."""
        split = self._split(ids, texts, epoch, np.ones(len(texts), bool))
        too_long = np.diff(split[1]) > self.max_tokens
        return self._split(ids, texts, epoch, ~too_long) if too_long.any() else split

    def _split(
        self,
        flat: FlatIds,
        texts: Int64[np.ndarray, " text"],
        epoch: int,
        allowed: Bool[np.ndarray, " text"],
    ) -> SplitIds:
        ids, offsets = flat
        owners = np.repeat(np.arange(len(texts)), np.diff(offsets))
        positions = (np.arange(len(ids)) - offsets[owners]).astype(np.uint64)
        text_hashes = splitmix64(texts.astype(np.uint64)[owners] + hash_key(self.seed, epoch), 0)
        hashes = splitmix64(text_hashes + positions, 1)
        new = np.flatnonzero(allowed[owners])  # tokens that have not been considered yet
        while len(splitting := new[self._splits(ids[new], hashes[new])]):
            counts = np.ones(len(ids), np.int64)
            counts[splitting] = 2
            parts, parents = self.merge_parts[ids[splitting]], hashes[splitting]
            ids, owners = np.repeat(ids, counts), np.repeat(owners, counts)
            hashes = np.repeat(hashes, counts)
            first = splitting + np.arange(len(splitting))  # index of the first part of each token
            ids[first], ids[first + 1] = parts[:, 0], parts[:, 1]
            hashes[first], hashes[first + 1] = splitmix64(parents, 2), splitmix64(parents, 3)
            new = np.stack([first, first + 1], 1).ravel()
        lengths = np.bincount(owners, minlength=len(texts))
        return ids, np.concatenate([[0], np.cumsum(lengths)])

    def _splits(
        self, ids: Int64[np.ndarray, " token"], hashes: UInt64[np.ndarray, " token"]
    ) -> Bool[np.ndarray, " token"]:
        has_parts = self.merge_parts[ids, 0] != NO_MERGE
        return has_parts & (splitmix64(hashes, 4) < self.threshold)
