"""Tokenizer: text ↔ ids, on the `tokenizers` library and its tokenizer.json.

The file is one that Regard trained, in which every text can be restored, or that of another
project, with its own normaliser, pre-tokenizer and decoder. `encode` adds no special tokens around
a text, and `decode` omits them; where they belong is the matter of a `Template`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer as Library

from regard.disk import write_atomically
from regard.text.foreign_vocabulary import ForeignVocabulary
from regard.text.regard_vocabulary import (
    BEGIN,
    BYTE_TOKENS,
    END,
    FIRST_BYTE,
    REPLACEMENT,
    SPECIAL_TOKENS,
    UNKNOWN,
    RegardVocabulary,
    is_regard_vocabulary,
    nfc,
    nfd,
    source_spans,
)
from regard.text.tokenizer_limits import MAX_BYTES, check_document, check_ids, check_patterns
from regard.text.vocabulary import Piece, TokenizerError, Vocabulary

__all__ = [
    "BEGIN",
    "BYTE_TOKENS",
    "END",
    "FIRST_BYTE",
    "REPLACEMENT",
    "SPECIAL_TOKENS",
    "UNKNOWN",
    "Piece",
    "Tokenizer",
    "TokenizerError",
    "nfc",
    "nfd",
    "source_spans",
]


MAX_REASON = 200  # characters of the library's message


class Tokenizer:
    """A vocabulary and its segmentation. `size` is the number of ids where a model has more than
    the file: the others have no token.
    """

    def __init__(self, library: Library, size: int | None = None) -> None:
        self.library = library
        check_ids(library.get_vocab(with_added_tokens=True).values())
        document = json.loads(library.to_str())
        check_document(document)
        self.vocabulary: Vocabulary = (
            RegardVocabulary(library, document)
            if is_regard_vocabulary(library)
            else ForeignVocabulary(library, document, size)
        )
        self.kind = self.vocabulary.kind
        self.unknown = self.vocabulary.unknown

    def __len__(self) -> int:
        return len(self.vocabulary)

    @property
    def is_foreign(self) -> bool:
        """Whether the file is that of another project."""
        return self.kind == ForeignVocabulary.kind

    @property
    def is_decomposed(self) -> bool:
        """Whether its tokens are letters, marks and jamo (NFD) instead of composed characters."""
        return isinstance(self.vocabulary, RegardVocabulary) and self.vocabulary.decomposed

    def with_size(self, size: int) -> Tokenizer:
        """The same tokenizer for a model with `size` ids; that of another project may have fewer or
        more.

        Ids without a token are spelled with nothing; tokens that the model does not have are
        unknown.
        """
        if size == len(self):
            return self
        if not self.is_foreign or (size < len(self) and not _is_below(self.unknown, size)):
            raise TokenizerError(f"it has {len(self):,} ids, not {size:,}")
        return Tokenizer(self.library, size)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        if not isinstance(text, str):
            raise TokenizerError(f"text must be a str; got {text!r:.80}")
        try:
            return self.vocabulary.encode(text)
        except (TypeError, UnicodeError):  # which one depends on the library's version
            raise TokenizerError(
                f"{text!r} is not valid Unicode: it has half a surrogate pair; decode it as UTF-8"
            ) from None
        except BaseException as error:
            raise _failure(error, f"cannot encode {text!r:.40}") from None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens. In a vocabulary that Regard trained,
        `decode(encode(text))` is the NFC text (`words`: with single spaces)."""
        try:
            return self.vocabulary.decode(list(ids))
        except TokenizerError:
            raise
        except BaseException as error:
            raise _failure(error, "cannot decode these ids") from None

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text with their spans in the original (not normalised) text. The label of
        an unknown token is its symbol."""
        return self.vocabulary.pieces(text, self.encode(text))

    def decode_pieces(self, ids: Sequence[int]) -> list[Piece]:
        """The tokens of ids with their spans in `decode(ids)`; special tokens have empty ones."""
        return self.vocabulary.decode_pieces(ids)

    def unknown_symbols(self, text: str) -> list[str]:
        """The symbols of a text that are not in the vocabulary, in order, with repetitions."""
        if self.unknown is None or self.unknown not in self.encode(text):
            return []
        return [piece.text for piece in self.pieces(text) if piece.id == self.unknown]

    def label(self, id: int) -> str:
        """The printable form of a token; a byte that is not a character is written as <0xE2>."""
        return self.vocabulary.label(id)

    def token(self, id: int) -> str:
        """The name of a token in the file, unique for each id."""
        return self.vocabulary.token(id)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the tokenizer's definition, independent of the file layout."""
        return hashlib.sha256(self.library.to_str().encode()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokenizer.json atomically."""
        write_atomically(Path(path), self.library.to_str(pretty=True))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a tokenizer.json of Regard or of another project; runs no code from the file."""
        name = repr(os.fspath(path))
        try:
            if (size := Path(path).stat().st_size) > MAX_BYTES:
                raise TokenizerError(f"tokenizer {name} has {size:,} bytes; at most {MAX_BYTES:,}")
            return cls.from_json(Path(path).read_bytes(), name)
        except OSError as error:
            raise TokenizerError(f"cannot read tokenizer {name}: {error.strerror}") from None

    @classmethod
    def from_json(cls, content: str | bytes, name: str = "this definition") -> Tokenizer:
        """A tokenizer from the content of a tokenizer.json; `name` is for errors."""
        try:
            text = content if isinstance(content, str) else content.decode()
            check_patterns(text.encode())
            return cls(Library.from_str(text))._checked(name)
        except BaseException as error:  # the library raises plain Exceptions, or panics
            if not isinstance(error, Exception) and not _is_panic(error):
                raise
            what = (str(error).splitlines() or ["?"])[0][:MAX_REASON]
            raise TokenizerError(
                f"{name} is not a valid tokenizer.json ({what}); copy it again"
            ) from None

    def _checked(self, name: str) -> Tokenizer:
        """Raise if parts of the file are missing or do not work together."""
        library = self.library
        if self.is_foreign:
            self.decode(self.encode("a 1"))
        elif library.normalizer is None or not library.id_to_token(len(self) - 1):
            raise TokenizerError("parts of it are missing")
        return self


def _is_panic(error: BaseException) -> bool:
    """Whether the library failed an assertion; it is not an Exception in Python."""
    return type(error).__name__ == "PanicException"


def _failure(error: BaseException, what: str) -> BaseException:
    """The error of a tokenizer whose parts do not work together; others pass unchanged."""
    if not _is_panic(error) and type(error) is not Exception:
        return error
    reason = (str(error).splitlines() or ["?"])[0][:MAX_REASON]
    return TokenizerError(f"this tokenizer {what}: {reason}; its file is damaged, copy it again")


def _is_below(id: int | None, size: int) -> bool:
    return id is not None and id < size
