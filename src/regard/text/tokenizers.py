"""Tokenizer: lossless text ↔ ids, on the `tokenizers` library and its tokenizer.json.

Three special tokens have the same ids in every vocabulary: 0 unknown, 1 begin, 2 end. There is no
padding token, because nothing is padded. In `bytes`, `bpe` and `unigram` the next 256 ids are the
bytes, so that a character without its own token is spelled in UTF-8. A tag such as <2mod> that
occurs in the training text is one token. `encode` adds neither begin nor end; `decode` omits both.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Library

from regard.disk import write_atomically
from regard.errors import RegardError

UNKNOWN, BEGIN = 0, 1
END = 2
# Every kind splits text before a space, so no text can produce a name that contains one.
SPECIAL_TOKENS = ("< unknown >", "< begin >", "< end >")
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
FIRST_BYTE = len(SPECIAL_TOKENS)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TokenizerError(RegardError):
    """A tokenizer that cannot be trained, read or used."""


class Piece(NamedTuple):
    """A token of a text: its label, its id, and the characters [start, end) it covers."""

    text: str
    id: int
    start: int
    end: int


class Tokenizer:
    """A vocabulary and its segmentation: NFC normalisation, then the tokens of its `kind`."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.kind = _infer_kind(json.loads(library.to_str()))

    def __len__(self) -> int:
        return int(self.library.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without begin and end."""
        if not isinstance(text, str):
            raise TokenizerError(f"text must be a str; got {text!r:.80}")
        try:
            ids: list[int] = self.library.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeError):  # which one depends on the library's version
            raise TokenizerError(
                f"{text!r} is not valid Unicode: it has half a surrogate pair; decode it as UTF-8"
            ) from None
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids. `decode(encode(text))` is the NFC text (`words`: with single spaces)."""
        spellings = self._spell(ids)
        if self.kind == "words":
            return b" ".join(filter(None, spellings)).decode()
        return b"".join(spellings).decode(errors="replace")

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text with their spans in the original (not NFC) text. The label of an
        unknown token is its symbol."""
        normalise = self.library.normalizer.normalize_str
        ids, normal = self.encode(text), normalise(text)
        origin = source_spans(text, normalise)
        if self.kind == "words":
            spans = list(self.library.encode(normal, add_special_tokens=False).offsets)
        else:
            spans = self._spans(self._spell(ids))
        return [
            Piece(
                normal[a:b] if id == UNKNOWN else self.label(id), id, origin[a][0], origin[b - 1][1]
            )
            for id, (a, b) in zip(ids, spans, strict=True)
        ]

    def decode_pieces(self, ids: Sequence[int]) -> list[Piece]:
        """The tokens of ids with their spans in `decode(ids)`; those of begin and end are empty."""
        spellings = self._spell(ids)
        if self.kind == "words":
            words = [i for i, spelling in enumerate(spellings) if spelling]
            for i in words[1:]:
                spellings[i] = b" " + spellings[i]
            spans = [(a + (b > a and a > 0), b) for a, b in self._spans(spellings)]
        else:
            spans = self._spans(spellings)
        return [Piece(self.label(id), id, a, b) for id, (a, b) in zip(ids, spans, strict=True)]

    def unknown_symbols(self, text: str) -> list[str]:
        """The symbols of a text that are not in the vocabulary, in order, with repetitions."""
        if UNKNOWN not in self.encode(text):
            return []
        return [piece.text for piece in self.pieces(text) if piece.id == UNKNOWN]

    def label(self, id: int) -> str:
        """The printable form of a token; a byte that is not a character is written as <0xE2>."""
        spelling = self._spell([id])[0]
        if id < len(SPECIAL_TOKENS):
            return SPECIAL_TOKENS[id]
        try:
            return spelling.decode()
        except UnicodeDecodeError:
            return BYTE_TOKENS[spelling[0]]

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the tokenizer's definition, independent of the file layout."""
        return hashlib.sha256(self.library.to_str().encode()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokenizer.json atomically."""
        write_atomically(Path(path), self.library.to_str(pretty=True))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a saved tokenizer; runs no code from the file."""
        name = repr(os.fspath(path))
        try:
            library = Library.from_str(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise TokenizerError(f"cannot read tokenizer {name}: {error.strerror}") from None
        except Exception as error:  # the library raises plain Exceptions for broken files
            what = str(error).splitlines()[0]
            raise TokenizerError(
                f"{name} is not a valid tokenizer.json ({what}); copy it again"
            ) from None
        for id, token in enumerate(SPECIAL_TOKENS):
            if library.token_to_id(token) != id:
                raise TokenizerError(
                    f"{name} is not a Regard tokenizer: id {id} is {library.id_to_token(id)!r}, "
                    f"not {token!r}; train one with regard.text"
                )
        last = library.id_to_token(library.get_vocab_size() - 1)
        if library.normalizer is None or last is None:
            raise TokenizerError(f"{name} was altered: parts of it are missing; copy it again")
        return cls(library)

    @cached_property
    def _spellings(self) -> list[bytes]:
        """The UTF-8 bytes of each id."""
        spellings = [str(self.library.id_to_token(id)).encode() for id in range(len(self))]
        spellings[: len(SPECIAL_TOKENS)] = [REPLACEMENT.encode(), b"", b""]
        if self.kind in ("bytes", "bpe", "unigram"):
            spellings[FIRST_BYTE : FIRST_BYTE + 256] = [bytes([byte]) for byte in range(256)]
        return spellings

    def _spell(self, ids: Iterable[int]) -> list[bytes]:
        ids = list(ids)
        if ids and not 0 <= min(ids) <= max(ids) < len(self):
            wrong = next(id for id in ids if not 0 <= id < len(self))
            raise TokenizerError(
                f"id {wrong} is not in this vocabulary of {len(self):,} (0 to {len(self) - 1:,})"
            )
        return [self._spellings[id] for id in ids]

    @staticmethod
    def _spans(spellings: Sequence[bytes]) -> list[tuple[int, int]]:
        """The characters each token has bytes of; byte tokens may share one character."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        spans, done = [], 0
        for spelling in spellings:
            start, done = done, done + len(decoder.decode(spelling))
            spans.append((start, done + bool(decoder.getstate()[0]) if spelling else start))
        return spans


def _infer_kind(document: dict[str, Any]) -> str:
    """The kind of a tokenizer from its structure; the file format has no field for it."""
    model = document["model"]
    if model["type"] != "BPE":
        return "words" if model["type"] == "WordLevel" else "unigram"
    if not model["byte_fallback"]:
        return "characters"
    tags = len(document["added_tokens"])
    return "bpe" if len(model["vocab"]) - tags > FIRST_BYTE + 256 else "bytes"


def nfc(text: str) -> str:
    """The text in Unicode's composed form: e + ◌́ becomes é (Unicode Standard Annex 15)."""
    return unicodedata.normalize("NFC", text)


def source_spans(text: str, normalise: Callable[[str], str] = nfc) -> list[tuple[int, int]]:
    """For each character of `normalise(text)`, the span (start, end) of `text` it comes from.

    The text is split wherever both sides normalise independently; all characters of a segment share
    its span.
    """
    if normalise(text) == text:
        return [(i, i + 1) for i in range(len(text))]
    spans: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or _is_boundary(text[start:end], text[end], normalise):
            spans += [(start, end)] * len(normalise(text[start:end]))
            start = end
    return spans


def _is_boundary(before: str, character: str, normalise: Callable[[str], str]) -> bool:
    """Whether `character` neither combines with `before` nor is reordered with its marks."""
    if unicodedata.combining(character):
        return False
    return normalise(before + character) == normalise(before) + normalise(character)
