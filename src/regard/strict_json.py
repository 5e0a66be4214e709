"""JSON from files that nobody vouches for: bounded, and without what strict JSON does not know.

Refused: NaN and infinite numbers, integers beyond 64 bits, keys that occur twice, halves of
surrogate pairs, and documents that are nested too deeply.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from regard.errors import RegardError

MAX_DEPTH = 64
MAX_INTEGER = 1 << 63
MAX_DIGITS = 20


class JsonError(RegardError):
    """A document that is not acceptable JSON; the message completes "FILE is invalid: …"."""


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`; every value in it is finite, and its strings are Unicode."""
    values = parse(data)
    if not isinstance(values, dict):
        raise JsonError("it is not a JSON object")
    _check_depth(values)
    return values


def parse(data: bytes) -> Any:
    """The JSON value in `data`, of any depth that the parser takes."""
    try:
        text = data.decode("utf-8")
        values = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
        if "\\u" in text:  # the only way to write half a surrogate pair
            json.dumps(values, ensure_ascii=False).encode()
    except JsonError:
        raise
    except UnicodeEncodeError:
        raise JsonError("it has half a surrogate pair") from None
    except (ValueError, RecursionError):
        raise JsonError("it is not valid JSON") from None
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise JsonError(f"{counts.most_common(1)[0][0]!r:.80} occurs twice in it")
    return values


def _refuse_constant(name: str) -> Any:
    raise JsonError(f"it has the number {name}")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonError(f"it has the number {text:.40}")
    return number


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS or not -MAX_INTEGER <= int(text) < MAX_INTEGER:
        raise JsonError(f"it has the number {text:.40}")
    return int(text)


def _check_depth(values: Any) -> None:
    layer, depth = [values], 0
    while layer := [
        inner
        for one in layer
        for inner in (one.values() if isinstance(one, dict) else one)
        if isinstance(inner, dict | list)
    ]:
        depth += 1
        if depth >= MAX_DEPTH:
            raise JsonError(f"it is nested more than {MAX_DEPTH} levels deep")
