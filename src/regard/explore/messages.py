"""HTTP messages of the explorer: limits and request bodies."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from regard.decoding_options import DEFAULT_BEAM, SearchOptions
from regard.web.access import HttpError

MAX_BODY = 64 * 1024  # bytes
MAX_CHARACTERS = 4_000
MAX_TOKENS = 512  # per side
MAX_EDITS = 32
MAX_BEAM = 16


def not_found(code: str, message: str) -> HttpError:
    """The error for an unknown name."""
    return HttpError(404, code, message)


class RequestBody(BaseModel):
    """The body of a POST request; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TokenizeRequest(RequestBody):
    """A text to tokenize."""

    model: str = Field(max_length=200)
    text: str = Field(max_length=MAX_CHARACTERS)
    side: Literal["source", "target"] = "source"


class HeadAblationRequest(RequestBody):
    """A text on which every head is ablated in turn."""

    model: str = Field(max_length=200)
    source: str = Field(max_length=MAX_CHARACTERS)
    target: str | None = Field(None, max_length=MAX_CHARACTERS)
    checkpoint: int | None = Field(None, ge=0)  # a step of the training film


_FIELDS: dict[str, Any] = {
    **{field.name: (field.type, field.default) for field in fields(SearchOptions)},
    "beam": (int, Field(DEFAULT_BEAM, ge=1, le=MAX_BEAM)),
}
# Names, types and defaults of the decoding options, as a part of a request.
Decoding = create_model("Decoding", __base__=RequestBody, **_FIELDS)


class TraceRequest(HeadAblationRequest):
    """A text to trace: with teacher forcing on `target`, or on the generated output."""

    decoding: Decoding = Decoding()
    edits: list[dict[str, Any]] = Field([], max_length=MAX_EDITS)

    @field_validator("decoding", mode="before")
    @classmethod
    def _tuples(cls, options: Any) -> Any:
        """Lists of words as tuples, which JSON lacks."""
        if not isinstance(options, dict):
            return options
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in options.items()
        }

    @property
    def options(self) -> SearchOptions:
        """The decoding options; a beam of 1 is greedy search."""
        return SearchOptions(**self.decoding.model_dump())

    @property
    def id(self) -> str:
        """The hash of everything the trace depends on. A given target needs no search."""
        inputs = self.model_dump()
        if self.target is not None:
            del inputs["decoding"]
        if self.checkpoint is None:
            del inputs["checkpoint"]
        canonical = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:24]
