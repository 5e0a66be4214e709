"""SourceEncoder: from a source text to token ids, with a check of its length."""

from __future__ import annotations

import warnings
from typing import Any

from regard.errors import RegardError, shorten
from regard.text.tokenizers import Tokenizer

LONG = ("warn", "refuse", "allow")
LIMIT_FACTOR = 10  # a source may be this many times as long as the longest in training
LEAST_LIMIT = 1_000  # tokens that every model accepts
ASSUMED_LONGEST = 512  # where the longest source in training is unknown
PREFIX_CHARACTERS = 16  # per token of the limit: what is tokenized of a much longer text at first


class SourceTooLong(RegardError):
    """A source that is far longer than any in training. It is rejected; others are not affected."""


class SourceEncoder:
    """Encodes sources. `longest` is the length of the longest source in training, if it is known;
    `long` handles longer ones: warn, refuse or allow. Sources of more than `limit` tokens are
    rejected: the time for them grows with the square of their length, and no model is of use there.
    `fixed`: the limit is that of the model and cannot be raised.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        longest: int | None,
        long: str,
        limit: int | None = None,
        *,
        fixed: bool = False,
    ) -> None:
        if long not in LONG:
            raise RegardError(f"long must be warn, refuse or allow; got {long!r}")
        self._tokenizer, self._longest, self._long = tokenizer, longest, long
        self._limit, self._fixed = limit, fixed

    def ids(self, line: str) -> list[int]:
        """The token ids of a source, without surrounding white space, as in training."""
        return self._tokenizer.encode(as_text(line).strip())

    def __call__(self, line: str) -> list[int]:
        """The token ids of a source, after the check of its length."""
        self._check_prefix(line)
        ids, longest = self.ids(line), self._longest
        if self._limit is not None and len(ids) > self._limit:
            raise self._too_long(line, f"{len(ids):,} tokens")
        if longest is not None and len(ids) > longest and self._long != "allow":
            what = f"{shorten(line)} has {len(ids):,} tokens, more than any training source"
            if self._long == "refuse":
                raise RegardError(f"{what} ({longest:,}); shorten it, or set long to allow")
            warnings.warn(f"{what} ({longest:,}); the answer may be poor", stacklevel=3)
        return ids

    def _check_prefix(self, line: str) -> None:
        """Reject a text of megabytes without tokenizing all of it, which would take a minute."""
        if self._limit is None:
            return
        most = PREFIX_CHARACTERS * self._limit
        if len(as_text(line)) > most and len(self.ids(line[:most])) > self._limit:
            raise self._too_long(line, f"{len(line):,} characters")

    def _too_long(self, line: str, length: str) -> SourceTooLong:
        what = f"{shorten(line)} has {length}"
        if self._fixed:
            return SourceTooLong(f"{what}; this model has {self._limit:,} positions; shorten it")
        return SourceTooLong(
            f"{what}, more than the limit of {self._limit:,} tokens; shorten it, or raise "
            "max_source_length"
        )


def source_limit(
    requested: int | None, longest: int | None, positions: int | None = None
) -> int | None:
    """The maximum source length in tokens: as requested (0: no limit), or far beyond the longest
    source in training; never more than the positions of the model. None: no limit."""
    if requested is not None and (not isinstance(requested, int) or requested < 0):
        raise RegardError(f"max_source_length must be at least 0 (no limit); got {requested!r}")
    default = max(LEAST_LIMIT, LIMIT_FACTOR * (longest or ASSUMED_LONGEST))
    limit = default if requested is None else requested or None
    return limit if positions is None else min(limit or positions, positions)


def as_text(line: Any) -> str:
    """The line, which must be a str."""
    if not isinstance(line, str):
        raise RegardError(f"text must be a str; got {line!r}")
    return line
