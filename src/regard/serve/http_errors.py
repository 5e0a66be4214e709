"""Errors as HTTP responses, in OpenAI's and LibreTranslate's form."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from regard.errors import RegardError
from regard.serve.service_errors import ServiceError
from regard.web.access import HttpError

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


@dataclass(frozen=True)
class Failure:
    """A failed request: status, code for programs, one line for people, and headers."""

    status: int
    code: str
    message: str
    parameter: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


def failure(error: BaseException) -> Failure:
    """The response to an exception; an unexpected one is a bug of the server."""
    if isinstance(error, ServiceError):
        headers = {}
        if error.retry_after is not None or error.status == 429:
            headers["retry-after"] = str(max(1, math.ceil(error.retry_after or 1)))
        return Failure(error.status, error.code, str(error), None, headers)
    if isinstance(error, HttpError):
        code = error.code.replace("-", "_")
        return Failure(error.status, code, str(error), error.field, error.headers)
    if isinstance(error, RegardError):
        return Failure(422, "invalid_request", str(error))
    text = f"{type(error).__name__} in the server: this is a bug; see the server's log"
    return Failure(500, "internal_error", text)


ErrorForm = Callable[[Failure], bytes]


def openai_form(failed: Failure) -> bytes:
    """{"error": {"message", "type", "param", "code"}}."""
    server = "server_error" if failed.status >= 500 else "invalid_request_error"
    kind = KINDS.get(failed.status, server)
    content = {
        "message": failed.message,
        "type": kind,
        "param": failed.parameter,
        "code": failed.code,
    }
    return json.dumps({"error": content}).encode()


def libretranslate_form(failed: Failure) -> bytes:
    """{"error": "message"}."""
    return json.dumps({"error": failed.message}).encode()
