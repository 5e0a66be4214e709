"""JSON in requests and responses: one-line validation errors, and numbers that JSON lacks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from regard.web.access import HttpError

NOT_FIELDS = ("body", "query", "path", "str", "list[str]", "tuple[str, ...]")  # places and types


def invalid(message: str, code: str = "invalid") -> HttpError:
    """The error for a well-formed request that cannot be fulfilled."""
    return HttpError(422, code, message)


def validation_error(errors: Sequence[Mapping[str, Any]]) -> HttpError:
    """The first of pydantic's errors in one line, with the dotted path of the field."""
    error, location = _describe(errors), errors[0]["loc"]
    error.field = str(location[0]) if location and error.code != "wrong-json" else None
    return error


def _describe(errors: Sequence[Mapping[str, Any]]) -> HttpError:
    same_field = [error for error in errors if error["loc"][:1] == errors[0]["loc"][:1]]
    first = max(same_field, key=lambda error: len(error["loc"]))  # of a union, the nearest member
    parts = [str(part) for part in first["loc"] if part not in NOT_FIELDS]
    field = ".".join(parts) or "the request"
    if first["type"] == "json_invalid":
        reason = str(first["ctx"]["error"])
        where = f" at character {first['loc'][-1]}" if first["loc"] else ""  # else the reason says
        return invalid(f"the body is not valid JSON: {reason.lower()}{where}", "wrong-json")
    if first["type"] == "missing":
        return invalid(f"{field} is missing; add it")
    if first["type"] == "extra_forbidden":
        return invalid(f"unknown field {field}; remove it")
    code = "too-long" if first["type"] in ("string_too_long", "too_long") else "invalid"
    message = f"{field}: {first['msg'][0].lower()}{first['msg'][1:]}; got {_short(first['input'])}"
    return invalid(message, code)


def _short(value: Any) -> str:
    """A value, shortened for a message."""
    if isinstance(value, str | list) and len(value) > 40:
        unit = "characters" if isinstance(value, str) else "entries"
        return f"{len(value):,} {unit}"
    text = ascii(value)
    return text if len(text) <= 60 else text[:59] + "…"


def to_json(value: Any) -> str:
    """JSON in ASCII, which also encodes lone surrogates; non-finite numbers become strings."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # rare, and checking every number first would take longer
        return json.dumps(_finite(value), separators=(",", ":"))


def _finite(value: Any) -> Any:
    """The same values with "inf", "-inf" and "nan" for non-finite numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
