"""SourceEncoder: from a source text to token ids, with a check of its length."""

from __future__ import annotations

import warnings
from typing import Any

from regard.errors import RegardError
from regard.text.tokenizers import Tokenizer

LONG = ("warn", "refuse", "allow")


class SourceEncoder:
    """Encodes sources. `longest` is the length of the longest source in training, if it is known;
    `long` handles longer ones: warn, refuse or allow."""

    def __init__(self, tokenizer: Tokenizer, longest: int | None, long: str) -> None:
        if long not in LONG:
            raise RegardError(f"long must be warn, refuse or allow; got {long!r}")
        self._tokenizer, self._longest, self._long = tokenizer, longest, long

    def ids(self, line: str) -> list[int]:
        """The token ids of a source, without surrounding white space, as in training."""
        return self._tokenizer.encode(as_text(line).strip())

    def __call__(self, line: str) -> list[int]:
        """The token ids of a source, after the check of its length."""
        ids, longest = self.ids(line), self._longest
        if longest is not None and len(ids) > longest and self._long != "allow":
            what = f"{shorten(line)} has {len(ids):,} tokens, more than any training source"
            if self._long == "refuse":
                raise RegardError(f"{what} ({longest:,}); shorten it, or set long to allow")
            warnings.warn(f"{what} ({longest:,}); the answer may be poor", stacklevel=3)
        return ids


def as_text(line: Any) -> str:
    """The line, which must be a str."""
    if not isinstance(line, str):
        raise RegardError(f"text must be a str; got {line!r}")
    return line


def shorten(line: str) -> str:
    """A line for a message, in quotes and at most 40 characters long."""
    return repr(line if len(line) <= 40 else line[:39] + "…")
