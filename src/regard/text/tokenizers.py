"""Tokenizer: text to ids and back, exactly, on the `tokenizers` library and its tokenizer.json.

Three symbols have the same ids in every vocabulary: 0 unknown, 1 begin, 2 end. There is none for padding, for nothing
is padded. In `bytes`, `bpe` and `unigram` the next 256 ids are the bytes, so that a character without a piece of its
own is spelt in UTF-8 and survives. `encode` adds neither begin nor end; `decode` leaves both out.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from tokenizers import Tokenizer as Library

from regard.disk import write_whole
from regard.errors import RegardError
from regard.text.unicode import origins

UNKNOWN, BEGIN, END = 0, 1, 2
# Every kind cuts its text before a space, so a name with a space inside is one that no text can spell.
SYMBOLS = ("< unknown >", "< begin >", "< end >")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
FIRST_BYTE = len(SYMBOLS)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TokenizerError(RegardError):
    """A tokeniser that cannot be trained, read or used like this."""


class Piece(NamedTuple):
    """One token of a text: what it shows, its id, and the characters [start, end) of the text that it stands for."""

    text: str
    id: int
    start: int
    end: int


class Tokenizer:
    """One vocabulary and its way of cutting text: NFC first, then the pieces of its `kind`."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.kind = _kind(json.loads(library.to_str()))

    def __len__(self) -> int:
        return int(self.library.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without begin and end."""
        if not isinstance(text, str):
            raise TokenizerError(f"a text is needed; got {text!r:.80}")
        try:
            ids: list[int] = self.library.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeError):  # what the library says of half a surrogate pair depends on its version
            raise TokenizerError(f"{text!r} is not Unicode text: half a surrogate pair; read it as UTF-8") from None
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; `decode(encode(text))` is the text in NFC (`words`: with single spaces)."""
        spellings = self._spell(ids)
        if self.kind == "words":
            return b" ".join(filter(None, spellings)).decode()
        return b"".join(spellings).decode(errors="replace")

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text with their places in it, as it was before NFC. An unknown one shows its symbol."""
        normalise = self.library.normalizer.normalize_str
        ids, normal, stretches = self.encode(text), normalise(text), origins(text, normalise)
        if self.kind == "words":
            spans = list(self.library.encode(normal, add_special_tokens=False).offsets)
        else:
            spans = self._spans(self._spell(ids))
        return [
            Piece(normal[a:b] if id == UNKNOWN else self.label(id), id, stretches[a][0], stretches[b - 1][1])
            for id, (a, b) in zip(ids, spans, strict=True)
        ]

    def laid_out(self, ids: Sequence[int]) -> list[Piece]:
        """The same for ids that a model wrote: each with its place in `decode(ids)`. Begin and end take no room."""
        spellings = self._spell(ids)
        if self.kind == "words":
            words = [i for i, spelling in enumerate(spellings) if spelling]
            for i in words[1:]:
                spellings[i] = b" " + spellings[i]
            spans = [(a + (b > a and a > 0), b) for a, b in self._spans(spellings)]
        else:
            spans = self._spans(spellings)
        return [Piece(self.label(id), id, a, b) for id, (a, b) in zip(ids, spans, strict=True)]

    def unknown(self, text: str) -> list[str]:
        """The symbols of a text that the vocabulary does not hold, in order, each as often as it stands there."""
        if UNKNOWN not in self.encode(text):
            return []
        return [piece.text for piece in self.pieces(text) if piece.id == UNKNOWN]

    def label(self, id: int) -> str:
        """What a token looks like to a person; a byte that is no character by itself looks like <0xE2>."""
        spelling = self._spell([id])[0]
        if id < len(SYMBOLS):
            return SYMBOLS[id]
        try:
            return spelling.decode()
        except UnicodeDecodeError:
            return BYTES[spelling[0]]

    @cached_property
    def halves(self) -> Int64[np.ndarray, "vocabulary 2"]:
        """The two pieces that each piece of a bpe vocabulary was merged from; −1 for what is one by itself."""
        halves = np.full((len(self), 2), -1)
        for pair in reversed(json.loads(self.library.to_str())["model"].get("merges", [])):  # the first one counts
            halves[self.library.token_to_id("".join(pair))] = [self.library.token_to_id(half) for half in pair]
        return halves

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of what this tokeniser does, however its file is laid out."""
        return hashlib.sha256(self.library.to_str().encode()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokenizer.json, whole or not at all."""
        write_whole(Path(path), self.library.to_str(pretty=True))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read what `save` wrote; nothing in the file is run."""
        try:
            library = Library.from_str(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise TokenizerError(f"cannot read tokeniser {os.fspath(path)!r}: {error.strerror}") from None
        except Exception as error:  # the library raises bare Exceptions for every kind of broken file
            what = str(error).splitlines()[0]
            raise TokenizerError(f"{os.fspath(path)!r} is no whole tokenizer.json ({what}); copy it anew") from None
        for id, symbol in enumerate(SYMBOLS):
            if library.token_to_id(symbol) != id:
                raise TokenizerError(
                    f"{os.fspath(path)!r} is not one of Regard's tokenisers: "
                    f"its id {id} is {library.id_to_token(id)!r}, not {symbol!r}; train one with regard.text"
                )
        if library.normalizer is None or library.id_to_token(library.get_vocab_size() - 1) is None:
            raise TokenizerError(f"{os.fspath(path)!r} was altered: parts of it are missing; copy it anew")
        return cls(library)

    @cached_property
    def _spellings(self) -> list[bytes]:
        """The UTF-8 bytes each id stands for."""
        spellings = [str(self.library.id_to_token(id)).encode() for id in range(len(self))]
        spellings[: len(SYMBOLS)] = [REPLACEMENT.encode(), b"", b""]
        if self.kind in ("bytes", "bpe", "unigram"):
            spellings[FIRST_BYTE : FIRST_BYTE + 256] = [bytes([byte]) for byte in range(256)]
        return spellings

    def _spell(self, ids: Iterable[int]) -> list[bytes]:
        ids = list(ids)
        if ids and not 0 <= min(ids) <= max(ids) < len(self):
            wrong = next(id for id in ids if not 0 <= id < len(self))
            raise TokenizerError(f"id {wrong} is not in this vocabulary of {len(self):,} (0 to {len(self) - 1:,})")
        return [self._spellings[id] for id in ids]

    @staticmethod
    def _spans(spellings: Sequence[bytes]) -> list[tuple[int, int]]:
        """Which characters each piece has a byte in. A character of several byte pieces belongs to all of them."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        spans, done = [], 0
        for spelling in spellings:
            start, done = done, done + len(decoder.decode(spelling))
            spans.append((start, done + bool(decoder.getstate()[0]) if spelling else start))
        return spans


def _kind(document: dict[str, Any]) -> str:
    """The kind is not written in the file (the library takes no field of ours): its structure tells it."""
    model = document["model"]
    if model["type"] != "BPE":
        return "words" if model["type"] == "WordLevel" else "unigram"
    if not model["byte_fallback"]:
        return "characters"
    return "bpe" if len(model["vocab"]) > FIRST_BYTE + 256 else "bytes"
