"""ForeignVocabulary: the tokenizer.json of another project, used as it is.

Its own normaliser, pre-tokenizer and decoder apply. Its post-processor, padding, truncation and
dropout do not: special tokens around a text are those of a `Template`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from tokenizers import Tokenizer as Library

from regard.text.vocabulary import Piece, TokenizerError, Vocabulary

MAX_IDS = 1 << 22  # an id far beyond the others would fill the memory
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class ForeignVocabulary(Vocabulary):
    """The tokens of another project; `size` ids, of which those without a token are unused."""

    kind = "foreign"

    def __init__(self, library: Library, document: dict[str, Any], size: int | None) -> None:
        library.no_padding()
        library.no_truncation()
        if document["model"].get("dropout"):
            library.model.dropout = None  # the same text has the same ids
        self.library = library
        highest = max(library.get_vocab(with_added_tokens=True).values(), default=-1)
        self._size = highest + 1 if size is None else size
        if not 0 < self._size <= MAX_IDS:
            raise TokenizerError(f"a vocabulary of {self._size:,} ids; at most {MAX_IDS:,} fit")
        self.unknown = _unknown_id(library, document["model"])
        added = document.get("added_tokens") or []
        self._added = {token["id"] for token in added}
        self._special = {token["id"] for token in added if token["special"]}
        self._decoders = list(_flat_decoders(document.get("decoder")))

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> list[int]:
        """The ids of a text; tokens beyond the size are unknown."""
        ids, unknown, size = super().encode(text), self.unknown, self._size
        if unknown is None or not ids or max(ids) < size:
            return ids
        return [id if id < size else unknown for id in ids]

    def token(self, id: int) -> str:
        """The name of a token in the file; an id without one has its own name."""
        (id,) = self.check([id])
        found = self.library.id_to_token(id)
        return f"<unused {id}>" if found is None else str(found)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, by the file's own decoder, without special tokens."""
        return str(self.library.decode(self.check(ids), skip_special_tokens=True))

    def pieces(self, text: str, ids: Sequence[int]) -> list[Piece]:
        """The tokens of a text with their spans in it; the label of an unknown one is its text."""
        offsets = self.library.encode(text, add_special_tokens=False).offsets
        return [
            Piece(text[a:b] if id == self.unknown else self.label(id), id, a, b)
            for id, (a, b) in zip(ids, offsets, strict=True)
        ]

    def decode_pieces(self, ids: Sequence[int]) -> list[Piece]:
        """The tokens of ids with their spans in the decoded text.

        A decoder may join, strip or replace characters, so a span is what one more token adds to
        the text. Tokens with parts of one character share it.
        """
        text, pieces, done = self.decode(ids), [], 0
        for count, id in enumerate(ids, 1):
            so_far = self.decode(ids[:count])
            start, done = done, max(done, _shared_length(so_far, text))
            partial = done == start and len(so_far) > done and id not in self._special
            pieces.append(Piece(self.label(id), id, start, min(done + partial, len(text))))
        return pieces

    def label(self, id: int) -> str:
        """The printable form of a token: its spelling with a plain space, or its bytes."""
        return self._labels[self.check([id])[0]]

    @cached_property
    def _labels(self) -> list[str]:
        return [
            self.token(id) if id in self._added else _label(self.token(id), self._decoders)
            for id in range(len(self))
        ]


def _shared_length(one: str, other: str) -> int:
    """How many characters both texts start with."""
    if other.startswith(one):
        return len(one)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _unknown_id(library: Library, model: dict[str, Any]) -> int | None:
    """The id of symbols without a token, if the model has one and does not spell them in bytes."""
    if "unk_id" in model:
        found: int | None = model["unk_id"]
        return found
    name = model.get("unk_token")
    return None if name is None else library.token_to_id(name)


def _flat_decoders(decoder: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The decoders of a file in their order."""
    if decoder is None:
        return
    if decoder["type"] == "Sequence":
        for one in decoder["decoders"]:
            yield from _flat_decoders(one)
    else:
        yield decoder


def _label(token: str, decoders: Sequence[dict[str, Any]]) -> str:
    """The spelling of a single token, without what a decoder does at the start of a text."""
    for decoder in decoders:
        kind = decoder["type"]
        if kind == "ByteLevel":
            return _printable(bytes(_BYTES[c] for c in token)) if _is_byte_level(token) else token
        if kind == "ByteFallback" and (found := BYTE_TOKEN.fullmatch(token)):
            return _printable(bytes([int(found[1], 16)]))
        if kind == "Metaspace":
            token = token.replace(decoder["replacement"], " ")
        if kind == "Replace" and "String" in decoder["pattern"]:
            token = token.replace(decoder["pattern"]["String"], decoder["content"])
    return token


def _printable(spelling: bytes) -> str:
    """Bytes as text, or as <0xE2> where they are not."""
    text = spelling.decode(errors="surrogateescape")
    return "".join(f"<0x{ord(c) & 0xFF:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


def _byte_characters() -> dict[str, int]:
    """The byte of each character in byte-level BPE (Radford et al. 2019): printable characters of
    Latin-1 stand for themselves, the other bytes are numbered from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }


_BYTES = _byte_characters()


def _is_byte_level(token: str) -> bool:
    return all(character in _BYTES for character in token)
