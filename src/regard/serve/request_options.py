"""Decoding options of a request: checked by name, type and limit, and put into a standard form.

Requests with the same options in the standard form may share a batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from regard.decoding_options import DEFAULT_BEAM, DecodingOptions
from regard.errors import RegardError
from regard.serve.service_errors import InvalidRequest

MOST_CACHED = 256
encode_key = json.JSONEncoder(sort_keys=True).encode  # made once, unlike that of json.dumps
MAX_INTEGER = 2**127
DEFAULTS = asdict(DecodingOptions())
INTEGERS = {"beam", "min_length", "max_length", "no_repeat_ngram", "n_best", "top_k", "seed"}
NUMBERS = {"length_penalty", "repetition_penalty", "temperature", "top_p", "min_p"}
TEXTS = {"prefix", "source_language", "target_language"}
WORDS = {"ban", "require"}
LONGEST_WORDS = 1_000  # words, and characters of each word or prefix


@dataclass(frozen=True)
class CheckedOptions:
    """Options as JSON without defaults, and the work of a character with them (default: 1)."""

    json: str
    weight: float


class OptionChecker:
    """Checks options; the results of recent ones are kept."""

    def __init__(self, largest_beam: int) -> None:
        self._largest_beam = largest_beam
        self._known: dict[str, CheckedOptions] = {}

    def __call__(self, options: Mapping[str, Any]) -> CheckedOptions:
        """The options in the standard form; raises `InvalidRequest`, which names the option."""
        try:
            key = encode_key(options)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"options must be a JSON object: {error}") from None
        if (known := self._known.get(key)) is None:
            known = self._check(options)
            if len(self._known) >= MOST_CACHED:
                self._known.clear()
            self._known[key] = known
        return known

    def _check(self, options: Mapping[str, Any]) -> CheckedOptions:
        given = {name: value for name, value in options.items() if value is not None}
        for name, value in given.items():
            if reason := _type_error(name, value):
                raise InvalidRequest(f"{name} must be {reason}; got {_shorten(value)}")
        try:
            checked = DecodingOptions.of(**given)
            checked.check()
        except RegardError as error:
            raise InvalidRequest(str(error)) from None
        rows = checked.n_best if checked.sample else checked.beam_size
        if rows > self._largest_beam:
            name = "n_best" if checked.n_best > self._largest_beam else "beam"
            most = self._largest_beam
            raise InvalidRequest(f"{name} is {rows:,}, beyond the limit of {most}; lower {name}")
        values = {name: value for name, value in asdict(checked).items() if value != DEFAULTS[name]}
        return CheckedOptions(json.dumps(values, sort_keys=True), max(1.0, rows / DEFAULT_BEAM))


def _type_error(name: str, value: Any) -> str | None:
    """What an option must be, if the value is something else."""
    if name in INTEGERS:
        good = isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_INTEGER
        return None if good else "an integer"
    if name in NUMBERS:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        return None if good and math.isfinite(value) else "a finite number"
    if name in TEXTS:
        return None if _is_text(value) else f"a text of at most {LONGEST_WORDS:,} characters"
    if name in WORDS:
        words = [value] if isinstance(value, str) else value
        good = isinstance(words, list | tuple) and len(words) <= LONGEST_WORDS
        return None if good and all(map(_is_text, words)) else "a list of words"
    if name == "sample":
        return None if isinstance(value, bool) else "true or false"
    return None  # an unknown name is reported with the closest known one


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_WORDS:
        return False
    return is_unicode(value)


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
