"""Requests: what may be asked, and how much of it. Strict: an unknown name is an error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

BODY = 64 * 1024  # bytes
CHARACTERS, TOKENS, EDITS, BEAM = 4_000, 256, 32, 16


class Request(BaseModel):
    """The body of a POST."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Decode(Request):
    """How an answer is searched for."""

    method: Literal["greedy", "beam"] = "beam"
    beam: int = Field(4, ge=1, le=BEAM)

    @property
    def width(self) -> int:
        """Beginnings kept side by side; greedy search keeps one."""
        return 1 if self.method == "greedy" else self.beam


class Tokenise(Request):
    """A text to be cut into tokens."""

    model: str = Field(max_length=200)
    text: str = Field(max_length=CHARACTERS)
    side: Literal["source", "target"] = "source"


class Sweep(Request):
    """A text to be answered with each head cut in turn."""

    model: str = Field(max_length=200)
    source: str = Field(max_length=CHARACTERS)
    target: str | None = Field(None, max_length=CHARACTERS)


class Ask(Sweep):
    """A text whose way through the model is to be seen: to the given target, or to the answer that is found."""

    decode: Decode = Decode()
    edits: list[dict[str, Any]] = Field([], max_length=EDITS)

    @property
    def id(self) -> str:
        """The hash of all that the trace depends on. With a given target nothing is searched."""
        inputs = self.model_dump(exclude={"decode"})
        inputs["beam"] = self.decode.width if self.target is None else None
        canonical = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:24]


def in_a_line(errors: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The first mistake of a request, as a code and one line that names it by its dotted path."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path")) or "the request"
    if first["type"] == "json_invalid":
        return "wrong-json", f"the body is no JSON: {first['ctx']['error'].lower()} at character {first['loc'][-1]}"
    if first["type"] == "missing":
        return "invalid", f"{place} is missing; give it"
    if first["type"] == "extra_forbidden":
        return "invalid", f"unknown field {place}; leave it out"
    code = "too-long" if first["type"] in ("string_too_long", "too_long") else "invalid"
    return code, f"{place}: {first['msg'][0].lower()}{first['msg'][1:]}; got {_short(first['input'])}"


def _short(value: Any) -> str:
    """A value as a message can hold it."""
    if isinstance(value, str | list) and len(value) > 40:
        unit = "characters" if isinstance(value, str) else "entries"
        return f"{len(value):,} {unit}"
    text = ascii(value)
    return text if len(text) <= 60 else text[:59] + "…"
