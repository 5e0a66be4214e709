"""Requests of the HTTP endpoints, as pydantic models: fields, types, limits and descriptions.

The decoding options are the fields of `DecodingOptions`: names, types, defaults and help come from
there.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_type_hints
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from regard.decoding_options import DecodingOptions, option_help
from regard.web.access import HttpError
from regard.web.json_messages import invalid, validation_error

LARGEST = 2**31 - 1  # of integers: what every engine can represent
LARGEST_SEED = 2**53  # what every JSON parser reads exactly
MAX_NAME = 200
MAX_DEADLINE = 3_600.0

Text = str | list[str]
Parsed = TypeVar("Parsed", bound=BaseModel)


class InputRequest(BaseModel):
    """Texts for a model."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    input: Text = Field(description="A text or a list of texts.", min_length=0)
    model: str | None = Field(
        None, max_length=MAX_NAME, description="Name of the model; optional if there is only one."
    )
    stream: bool = Field(
        False, description="Send the output of one text as server-sent events while it is made."
    )
    deadline: float | None = Field(
        None, gt=0, le=MAX_DEADLINE, description="Seconds until the request fails with status 504."
    )

    @property
    def texts(self) -> list[str]:
        """The texts as a list."""
        return [self.input] if isinstance(self.input, str) else self.input

    @property
    def options(self) -> dict[str, Any]:
        """The decoding options that the request sets."""
        return {name: getattr(self, name) for name in self.model_fields_set & OPTIONS.keys()}


def _option_fields() -> dict[str, Any]:
    """The fields of `DecodingOptions` as fields of a request."""
    hints, texts = get_type_hints(DecodingOptions), option_help(DecodingOptions)
    found: dict[str, Any] = {}
    for field in fields(DecodingOptions):
        kind, text = hints[field.name], texts[field.name]
        if kind in (int, int | None):
            largest = LARGEST_SEED if field.name == "seed" else LARGEST
            found[field.name] = (kind, Field(field.default, ge=0, le=largest, description=text))
        elif kind == tuple[str, ...]:
            found[field.name] = (kind | str, Field(field.default, description=text))
        else:
            found[field.name] = (kind, Field(field.default, description=text))
    return found


OPTIONS = _option_fields()
OptionsRequest = create_model("OptionsRequest", __base__=InputRequest, **OPTIONS)


class GenerateRequest(OptionsRequest):
    """Texts to answer, with all decoding options."""

    alignment: bool = Field(
        False, description="Add the links [source token, output token] of each output."
    )


class TranslationsRequest(OptionsRequest):
    """Texts to translate, in the form of OpenAI's API."""

    user: str | None = Field(None, max_length=MAX_NAME, description="Ignored.")


class LibreTranslateRequest(BaseModel):
    """Texts to translate, in the form of LibreTranslate's API; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    q: Text = Field(description="A text or a list of texts.")
    source: str = Field("auto", max_length=MAX_NAME, description="Code of the source language.")
    target: str = Field(max_length=MAX_NAME, description="Code of the target language.")
    format: Literal["text"] = Field("text", description="Format of the texts: plain text only.")
    alternatives: int = Field(0, ge=0, le=LARGEST, description="Number of other translations.")
    api_key: str | None = Field(
        None, max_length=10_000, description="The token, instead of an Authorization header."
    )


QUOTED = {
    name: b'"%b"' % name.encode()
    for kind in (GenerateRequest, TranslationsRequest, LibreTranslateRequest)
    for name in kind.model_fields
}


def parse_json(kind: type[Parsed], body: bytes) -> Parsed:
    """A request from JSON in UTF-8; raises `HttpError` in one line."""
    try:
        found = kind.__pydantic_validator__.validate_json(body)
    except ValidationError as error:
        raise _with_status(error) from None
    if b"\\" in body or any(body.count(QUOTED[name]) > 1 for name in found.model_fields_set):
        _check_unique_keys(body)
    return found


def parse_form(kind: type[Parsed], body: bytes) -> Parsed:
    """A request from an HTML form (application/x-www-form-urlencoded); repeated q are a list."""
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=10_000)
    except ValueError:  # bad UTF-8 or too many fields
        raise invalid("the form is not readable; send UTF-8 and at most 10,000 fields") from None
    values: dict[str, Any] = {}
    for name, value in pairs:
        values[name] = [*_listed(values[name]), value] if name in values else value
    try:
        return kind.model_validate(values, strict=False)
    except ValidationError as error:
        raise _with_status(error) from None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _with_status(error: ValidationError) -> HttpError:
    found = validation_error([dict(one) for one in error.errors(include_url=False)])
    if found.code == "wrong-json":
        found.status = 400
    return found


def _check_unique_keys(body: bytes) -> None:
    """Raise if an object names a key twice: programs disagree about which value counts."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise invalid(f"field {twice[:80]} occurs twice; remove one")
        return found

    try:
        json.loads(body, object_pairs_hook=unique)
    except HttpError:
        raise
    except (ValueError, RecursionError):  # the stricter parser has accepted it
        return
