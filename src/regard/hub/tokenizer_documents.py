"""Definitions in the format of tokenizer.json, built from older tokenizer files.

A definition has a normaliser, a pre-tokenizer, a model and a decoder. Ids at or beyond the size of
the model's vocabulary are pieces that take part in the segmentation but are unknown to the model.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from regard.hub.sentencepiece_model import (
    BPE,
    BYTE,
    NORMAL,
    USER_DEFINED,
    SentencePiece,
    SentencePieceModel,
)

Document = dict[str, Any]
Scored = list[tuple[str, float]]
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # stands for a space
MATCHED = (NORMAL, USER_DEFINED, BYTE)  # types of pieces that occur in text
METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
SPLIT_SPACES = {"type": "WhitespaceSplit"}
SINGLE_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def document(
    model: Mapping[str, Any],
    *,
    special: Mapping[str, int] | None = None,
    plain: Mapping[str, int] | None = None,
    normaliser: Sequence[Mapping[str, Any]] = (),
    pre_tokenizer: Sequence[Mapping[str, Any]] = (),
    decoder: Mapping[str, Any] | None = None,
) -> Document:
    """A definition; `special` and `plain` tokens are found in the text before the model sees it."""
    added = [
        {"id": id, "content": content, "special": is_special, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for tokens, is_special in ((special or {}, True), (plain or {}, False))
        for content, id in tokens.items()
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": _sequence("normalizers", normaliser),
        "pre_tokenizer": _sequence("pretokenizers", pre_tokenizer),
        "post_processor": None,
        "decoder": decoder,
        "model": dict(model),
    }


def _sequence(name: str, parts: Sequence[Mapping[str, Any]]) -> Any:
    if not parts:
        return None
    return dict(parts[0]) if len(parts) == 1 else {"type": "Sequence", name: list(parts)}


def unigram(vocabulary: Scored, unknown: int, *, byte_fallback: bool = False) -> Document:
    """A unigram language model; ids are places in the list."""
    scored = [[piece, score] for piece, score in vocabulary]
    fallback = {"byte_fallback": byte_fallback}
    return {"type": "Unigram", "unk_id": unknown, "vocab": scored, **fallback}


def bpe(
    vocabulary: Mapping[str, int],
    merges: Iterable[tuple[str, str]],
    *,
    unknown: str | None = None,
    fuse_unknown: bool = False,
    byte_fallback: bool = False,
    suffix: str | None = None,
) -> Document:
    """Byte-pair encoding; `suffix` marks the end of a word."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": suffix,
        "fuse_unk": fuse_unknown,
        "byte_fallback": byte_fallback,
        "ignore_merges": False,
        "vocab": dict(vocabulary),
        "merges": [list(pair) for pair in merges],
    }


def charsmap(model: SentencePieceModel) -> list[dict[str, Any]]:
    """The normaliser that a SentencePiece model stores."""
    if not model.charsmap:
        return []
    text = base64.b64encode(model.charsmap).decode()
    return [{"type": "Precompiled", "precompiled_charsmap": text}]


def find_merges(pieces: Mapping[str, float]) -> list[tuple[str, str]]:
    """The merges of pieces by their scores, best first: every split into two other pieces."""
    found = [
        (score, piece[:cut], piece[cut:])
        for piece, score in pieces.items()
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
    found.sort(key=lambda merge: -merge[0])
    return [(left, right) for _, left, right in found]


def sentencepiece_document(
    model: SentencePieceModel,
    ids: Mapping[str, int],
    size: int,
    unknown: str,
    *,
    special: Mapping[str, int],
    plain: Mapping[str, int] | None = None,
) -> Document:
    """The segmentation of SentencePiece itself, with the ids of another list.

    Pieces that the list does not have get ids from `size` on. A token of the list that is not a
    piece keeps its id under a name with a space, which no text can match.
    """
    pieces = {piece.text: piece for piece in model.pieces if piece.type in MATCHED}
    kept = {*pieces, *special, *(plain or {})}
    others = [text for text in pieces if text not in ids]
    places = {**ids, **{text: size + number for number, text in enumerate(others)}}
    normaliser = charsmap(model)
    if model.strip_spaces:
        normaliser += [{"type": "Strip", "strip_left": True, "strip_right": True}, SINGLE_SPACES]
    if model.add_prefix:
        normaliser.append({"type": "Prepend", "prepend": SPACE})
    normaliser.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    user = {one.text: places[one.text] for one in pieces.values() if one.type == USER_DEFINED}
    if model.kind == BPE:
        scores = {one.text: one.score for one in pieces.values() if one.type == NORMAL}
        made = bpe(
            {_name(text, kept): id for text, id in places.items()},
            find_merges(scores),
            unknown=unknown,
            fuse_unknown=True,
            byte_fallback=model.byte_fallback,
        )
    else:
        made = unigram(
            _scored(places, pieces, kept, size + len(others)),
            places[unknown],
            byte_fallback=model.byte_fallback,
        )
    return document(
        made,
        special=special,
        plain={**user, **(plain or {})},
        normaliser=normaliser,
        decoder=space_decoder(model.byte_fallback),
    )


def space_decoder(byte_fallback: bool = False) -> dict[str, Any]:
    """Joins pieces: each mark becomes a space, except at the beginning."""
    if not byte_fallback:
        return METASPACE
    parts = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return {"type": "Sequence", "decoders": parts}


def _name(text: str, kept: Collection[str]) -> str:
    return text if text in kept else f"{text} "


def _scored(
    places: Mapping[str, int],
    pieces: Mapping[str, SentencePiece],
    kept: Collection[str],
    count: int,
) -> Scored:
    """The pieces in the order of their ids. Tokens that are not pieces have the lowest score: it
    sets the penalty of unknown characters."""
    lowest = min((one.score for one in pieces.values() if one.type == NORMAL), default=0.0)
    scored = [(f"unused {id}", lowest) for id in range(count)]
    for text, id in places.items():
        score = pieces[text].score if text in pieces else lowest
        scored[id] = (_name(text, kept), score)
    return scored
