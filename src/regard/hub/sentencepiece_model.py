"""SentencePiece models (.model, .spm): the few fields that a conversion needs.

A small reader of protocol buffers: https://protobuf.dev/programming-guides/encoding. The fields are
those of sentencepiece_model.proto (Kudo & Richardson 2018).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from regard.errors import RegardError

NORMAL, UNKNOWN_TYPE, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
MAX_PIECES = 1 << 21


class SentencePieceError(RegardError):
    """A file that is not a SentencePiece model, or uses a feature that is not supported."""


@dataclass(frozen=True)
class SentencePiece:
    """A piece of the vocabulary."""

    text: str
    score: float
    type: int


@dataclass(frozen=True)
class SentencePieceModel:
    """The vocabulary of a model, and how text is normalised before it is split."""

    pieces: list[SentencePiece]
    kind: int
    charsmap: bytes
    add_prefix: bool
    strip_spaces: bool
    byte_fallback: bool

    @classmethod
    def parse(cls, content: bytes) -> SentencePieceModel:
        """Read a serialised model; raises SentencePieceError if it is damaged."""
        try:
            return _parse(content)
        except (IndexError, struct.error, UnicodeDecodeError, TypeError) as error:
            raise SentencePieceError(f"it is not a SentencePiece model ({error})") from None


def _parse(content: bytes) -> SentencePieceModel:
    pieces: list[SentencePiece] = []
    trainer: dict[int, int | bytes] = {}
    normaliser: dict[int, int | bytes] = {}
    for field, value in _fields(content):
        if field == 1:
            piece = dict(_fields(_as_bytes(value)))
            score = struct.unpack("<f", _as_bytes(piece.get(2, b"\0" * 4)))[0]
            kind = piece.get(3, NORMAL)
            assert isinstance(kind, int)
            pieces.append(SentencePiece(_as_bytes(piece.get(1, b"")).decode(), score, kind))
        elif field == 2:
            trainer = dict(_fields(_as_bytes(value)))
        elif field == 3:
            normaliser = dict(_fields(_as_bytes(value)))
        if len(pieces) > MAX_PIECES:
            raise SentencePieceError(f"it has more than {MAX_PIECES:,} pieces")
    if not pieces:
        raise SentencePieceError("it has no pieces")
    kind = trainer.get(3, UNIGRAM)
    if kind not in (UNIGRAM, BPE):
        raise SentencePieceError("it is neither a unigram nor a BPE model")
    if trainer.get(24, 0):
        raise SentencePieceError("it marks spaces after words, which is not supported")
    if not normaliser.get(5, 1):
        raise SentencePieceError("it does not mark spaces, which is not supported")
    return SentencePieceModel(
        pieces,
        int(kind),
        _as_bytes(normaliser.get(2, b"")),
        add_prefix=bool(normaliser.get(3, 1)),
        strip_spaces=bool(normaliser.get(4, 1)),
        byte_fallback=bool(trainer.get(35, 0)),
    )


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: an integer, or bytes for all other types."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        wire = key & 7
        if wire == 0:
            value, place = _varint(content, place)
            yield key >> 3, value
            continue
        if wire == 2:
            size, place = _varint(content, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise TypeError(f"field type {wire}")
        if place + size > len(content):
            raise IndexError("it ends early")
        yield key >> 3, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise IndexError("a number is too long")


def _as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a number instead of a text")
    return value
