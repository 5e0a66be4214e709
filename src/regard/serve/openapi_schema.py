"""The OpenAPI 3.1 schema of the server, generated from the models of its requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from regard import __version__
from regard.serve.http_exchange import FORM, JSON
from regard.serve.http_requests import GenerateRequest, LibreTranslateRequest, TranslationsRequest

Schema = dict[str, Any]
STATUSES = {
    "400": "The body is not valid JSON.",
    "401": "The token is missing or wrong.",
    "404": "The model does not exist.",
    "413": "A limit of size is exceeded; the message names it.",
    "415": "The body has another type than JSON in UTF-8.",
    "422": "A field or an option is invalid; the message names it.",
    "429": "The queue is full; retry after the seconds of the header Retry-After.",
    "503": "The server is starting or stopping, or the request made two workers fail.",
    "504": "The request was not answered within its deadline.",
}
MODELS: tuple[type[BaseModel], ...] = (GenerateRequest, TranslationsRequest, LibreTranslateRequest)


class OutputSchema(BaseModel):
    """One output: text, tokens, log-probability of each token and the end, and their sum."""

    text: str
    tokens: list[str]
    logps: list[float]
    logp: float
    score: float
    confidence: float
    unknown: list[str]
    alignment: list[tuple[int, int]] | None = None


class GenerateResponse(BaseModel):
    """For each text its outputs, best first."""

    model: str
    outputs: list[list[OutputSchema]]


def openapi_schema(*, token: bool) -> Schema:
    """The schema; with `token`, requests need a bearer token."""
    kinds: tuple[type[BaseModel], ...] = (*MODELS, GenerateResponse, OutputSchema)
    _, definitions = models_json_schema(
        [(kind, "validation") for kind in kinds], ref_template="#/components/schemas/{model}"
    )
    components: Schema = {"schemas": definitions["$defs"]}
    schema: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "Regard", "version": __version__, "description": __doc__ or ""},
        "paths": _paths(),
        "components": components,
    }
    schema["info"]["description"] = "Outputs of sequence-to-sequence models over HTTP."
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
    return schema


def _paths() -> Schema:
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    response = {"$ref": "#/components/schemas/GenerateResponse"}
    return {
        "/v1/generate": {
            "post": _post("Outputs of a model for texts", GenerateRequest, response=response)
        },
        "/v1/translations": {
            "post": _post("Translations, in the form of OpenAI's API", TranslationsRequest)
        },
        "/v1/models": {"get": _get("The served models")},
        "/v1/models/{name}": {"get": {**_get("One model"), "parameters": [name]}},
        "/v1/models/{name}/reload": {
            "post": {**_get("Load the bundle of a model again"), "parameters": [name]}
        },
        "/translate": {
            "post": _post(
                "Translations, in the form of LibreTranslate's API", LibreTranslateRequest, FORM
            )
        },
        "/languages": {"get": _get("The languages, in the form of LibreTranslate's API")},
        "/v2/health/live": {"get": _get("Whether the server runs", public=True)},
        "/v2/health/ready": {"get": _get("Whether all models can answer (else 503)", public=True)},
        "/metrics": {"get": _get("Metrics for Prometheus", kind="text/plain")},
    }


def _get(summary: str, *, kind: str = JSON, public: bool = False) -> Schema:
    found: Schema = {"summary": summary, "responses": {"200": _response(kind)}}
    return {**found, "security": []} if public else found


def _post(
    summary: str, request: type[BaseModel], *types: str, response: Schema | None = None
) -> Schema:
    reference = {"schema": {"$ref": f"#/components/schemas/{request.__name__}"}}
    errors = {status: {"description": text} for status, text in STATUSES.items()}
    return {
        "summary": summary,
        "requestBody": {
            "required": True,
            "content": dict.fromkeys((JSON, *types), reference),
        },
        "responses": {"200": _response(JSON, response), **errors},
    }


def _response(kind: str, schema: Schema | None = None) -> Schema:
    return {"description": "Success", "content": {kind: {"schema": schema or {}}}}
