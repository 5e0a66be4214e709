"""Vocabulary: the tokens of a tokenizer, their labels, and how ids become text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tokenizers import Tokenizer as Library

from regard.errors import RegardError


class TokenizerError(RegardError):
    """A tokenizer that cannot be trained, read or used."""


class Piece(NamedTuple):
    """A token of a text: its label, its id, and the characters [start, end) it covers."""

    text: str
    id: int
    start: int
    end: int


class Vocabulary(ABC):
    """The tokens of a `tokenizers` library object. `kind` names the segmentation; `unknown` is the
    id of symbols without a token, None if every text can be spelled."""

    kind: str
    unknown: int | None
    library: Library

    @abstractmethod
    def __len__(self) -> int:
        """The number of ids."""

    @abstractmethod
    def token(self, id: int) -> str:
        """The name of a token in the file, unique for each id."""

    @abstractmethod
    def label(self, id: int) -> str:
        """The printable form of a token; a byte that is not a character is written as <0xE2>."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""

    @abstractmethod
    def pieces(self, text: str, ids: Sequence[int]) -> list[Piece]:
        """The tokens of an encoded text with their spans in it."""

    @abstractmethod
    def decode_pieces(self, ids: Sequence[int]) -> list[Piece]:
        """The tokens of ids with their spans in `decode(ids)`."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        ids: list[int] = self.library.encode(text, add_special_tokens=False).ids
        return ids

    def check(self, ids: Iterable[int]) -> list[int]:
        """The ids as a list; raises if one is not in the vocabulary."""
        ids = list(ids)
        if ids and not 0 <= min(ids) <= max(ids) < len(self):
            wrong = next(id for id in ids if not 0 <= id < len(self))
            raise TokenizerError(
                f"id {wrong} is not in this vocabulary of {len(self):,} (0 to {len(self) - 1:,})"
            )
        return ids
