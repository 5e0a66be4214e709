"""How a tokenizer splits a text: BPE merges in order of rank, unigram scores, or one table.

>>> segment(tokenizer, "lower newest").words[1].merges
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from regard.text.tokenizers import Tokenizer

BYTE_FALLBACK = "<0x{:02X}>"


BELOW = 10  # how far the score of an unknown token lies below the least of a unigram vocabulary


class Merge(NamedTuple):
    """One merge of two neighbours: rank of the pair, index of its left symbol, and the result."""

    rank: int
    at: int
    result: str


class SegmentedWord(NamedTuple):
    """A word (pre-token) and its tokens; `symbols` and `merges` in BPE, `scores` in a unigram.

    `ranks` has every pair of neighbours that could have been merged at some step, with its rank.
    """

    text: str
    tokens: list[str]
    symbols: list[str]
    merges: list[Merge]
    ranks: dict[tuple[str, str], int]
    scores: list[float]


class Segmentation(NamedTuple):
    """The words of a text. `method` is "bpe", "unigram", "wordpiece", "characters", "bytes" or
    "words"."""

    method: str
    words: list[SegmentedWord]
    unknown_score: float | None = None  # of a token that is not in a unigram vocabulary


def segment(tokenizer: Tokenizer, text: str) -> Segmentation:
    """The words of a text and how each of them becomes tokens."""
    splitter = _splitter(tokenizer)
    words = [splitter.split(word) for word in splitter.words(text)]
    return Segmentation(splitter.method, words, splitter.unknown_score)


@lru_cache(maxsize=8)
def _splitter(tokenizer: Tokenizer) -> _Splitter:
    return _Splitter(tokenizer)


class _Splitter:
    """The tables of a tokenizer.json."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.library = tokenizer.library
        self.document: dict[str, Any] = json.loads(self.library.to_str())
        self.model = self.document["model"]
        own = None if tokenizer.is_foreign else tokenizer.kind
        self.method = str(own or self.model["type"].lower())
        self.tokens = {token["content"]: token for token in self.document.get("added_tokens") or []}

    def words(self, text: str) -> Iterator[str]:
        """The words of a text after normalisation; an added token is one of its own."""
        added = "|".join(re.escape(token) for token in sorted(self.tokens, key=len, reverse=True))
        for part in re.split(f"({added})", text) if added else [text]:
            if part in self.tokens or not part:
                yield from [part] if part else []
                continue
            normaliser, splitter = self.library.normalizer, self.library.pre_tokenizer
            normal = normaliser.normalize_str(part) if normaliser else part
            found = splitter.pre_tokenize_str(normal) if splitter else [(normal, None)]
            yield from (word for word, _ in found if word)

    def split(self, word: str) -> SegmentedWord:
        """The tokens of a word."""
        if word in self.tokens:
            return SegmentedWord(word, [word], [word], [], {}, [])
        if self.model["type"] == "BPE":
            return self._merge(word)
        tokens = self.library.model.tokenize(word)
        scores = [self._score(token.id) for token in tokens] if self.is_unigram else []
        return SegmentedWord(word, [token.value for token in tokens], [], [], {}, scores)

    @property
    def is_unigram(self) -> bool:
        """Whether each token has a log-probability."""
        return bool(self.model["type"] == "Unigram")

    def _score(self, id: int) -> float:
        """The log-probability of a token; an unknown one is 10 below the least of all."""
        assert self.unknown_score is not None
        return self.unknown_score if id == self.model.get("unk_id") else self._scores[id]

    @cached_property
    def unknown_score(self) -> float | None:
        """The score of an unknown token; None if tokens have no scores."""
        return min(self._scores) - BELOW if self.is_unigram else None

    @cached_property
    def _scores(self) -> list[float]:
        return [float(score) for _, score in self.model["vocab"]]

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        pairs = (one.split(" ") if isinstance(one, str) else one for one in self.model["merges"])
        return {(left, right): rank for rank, (left, right) in enumerate(pairs)}

    def _merge(self, word: str) -> SegmentedWord:
        """Merge the pair of the lowest rank, the leftmost of several, until none is left."""
        vocab = self.model["vocab"]
        if self.model.get("ignore_merges") and word in vocab:
            return SegmentedWord(word, [word], [word], [], {}, [])
        start = self._symbols(word)
        symbols = list(start)
        merges: list[Merge] = []
        seen: dict[tuple[str, str], int] = {}
        prefix = len(self.model.get("continuing_subword_prefix") or "")
        while True:
            pairs = list(pairwise(symbols))
            known = [
                (self._ranks[pair], at) for at, pair in enumerate(pairs) if pair in self._ranks
            ]
            seen |= {pairs[at]: rank for rank, at in known}
            if not known:
                return SegmentedWord(word, symbols, start, merges, seen, [])
            rank, at = min(known)
            merges.append(Merge(rank, at, symbols[at] + symbols[at + 1][prefix:]))
            symbols[at : at + 2] = [merges[-1].result]

    def _symbols(self, word: str) -> list[str]:
        """The characters of a word; one that the vocabulary lacks as its bytes, or unknown."""
        model, vocab = self.model, self.model["vocab"]
        before, after = (
            model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix")
        )
        symbols: list[str] = []
        for at, letter in enumerate(word):
            name = (before if at else "") + letter + (after if at == len(word) - 1 else "")
            spelled = [BYTE_FALLBACK.format(byte) for byte in name.encode()]
            if name in vocab:
                symbols.append(name)
            elif model.get("byte_fallback") and all(byte in vocab for byte in spelled):
                symbols += spelled
            elif (unknown := model.get("unk_token")) and not (
                model.get("fuse_unk") and symbols and symbols[-1] == unknown
            ):
                symbols.append(unknown)
        return symbols
