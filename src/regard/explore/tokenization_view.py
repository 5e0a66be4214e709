"""The segmentation of a text as JSON: the merges of every word, or the scores of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.explore.trace_store import StoredTrace, check_model
from regard.text.segmentation import SegmentedWord, segment

if TYPE_CHECKING:
    from regard.text.tokenizers import Tokenizer


def tokenization(stored: StoredTrace, side: str) -> dict[str, Any]:
    """The words of one side with their merges or scores.

    `first` is the position of the first token. It is None if the tokens of the trace are not those
    of its text: a model may generate a spelling that the tokenizer would not choose.
    """
    check_model(stored)
    bundle, trace = stored.model.pipeline.bundle, stored.trace
    tokenizer = bundle.source if side == "source" else bundle.target
    text = stored.request.source.strip() if side == "source" else trace.answer.text
    ids = [piece.id for piece in trace.pieces(side)]
    own = tokenizer.encode(text)
    starts = range(len(ids) - len(own) + 1)
    first = next((at for at in starts if ids[at : at + len(own)] == own), None)
    found = segment(tokenizer, text)
    names = [name for word in found.words for name in word.tokens]
    agrees = [tokenizer.library.token_to_id(name) for name in names] == own
    return {
        "method": found.method,
        "first": first if agrees else None,
        "unknown_score": found.unknown_score,
        "words": [_describe(tokenizer, word) for word in found.words],
    }


def _describe(tokenizer: Tokenizer, word: SegmentedWord) -> dict[str, Any]:
    def label(symbol: str) -> str:
        id = tokenizer.library.token_to_id(symbol)
        return symbol if id is None or id >= len(tokenizer) else tokenizer.label(id)

    return {
        "text": word.text,
        "tokens": [
            {"id": tokenizer.library.token_to_id(token), "text": label(token)}
            for token in word.tokens
        ],
        "symbols": [[symbol, label(symbol)] for symbol in word.symbols],
        "merges": [[*merge, label(merge.result)] for merge in word.merges],
        "ranks": [[*pair, rank] for pair, rank in word.ranks.items()],
        "scores": word.scores,
    }
