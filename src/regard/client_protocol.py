"""What the clients of `regard serve` send and understand: requests, errors, retries and events."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import RegardError

ADDRESS = "http://127.0.0.1:7342"
RETRIED = frozenset({429, 502, 503})  # nothing was answered; a search has no side effects
MAX_PAUSE = 30.0  # seconds

Output = dict[str, Any]


class RequestFailed(RegardError):
    """A request that was rejected or did not reach the server; then `status` is 0.

    `code` names the error for programs, `retry_after` is in seconds, where the server gave it.
    """

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after

    @property
    def can_retry(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in RETRIED or self.code == "unreachable"


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with jitter: pause · 2ⁿ, times a random factor from ½ to 1, at most 30 s.

    A longer Retry-After of the server is honoured, up to the same limit.
    """

    retries: int = 4
    pause: float = 0.1

    def delay(self, attempt: int, error: RequestFailed) -> float | None:
        """Seconds before the next attempt (`attempt` counts from 0); None ends."""
        if attempt >= self.retries or not error.can_retry:
            return None
        backoff = min(MAX_PAUSE, self.pause * 2**attempt) * random.uniform(0.5, 1.0)
        return max(backoff, min(MAX_PAUSE, error.retry_after or 0.0))


def request_body(texts: str | Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request; options that are None are left to the server."""
    if not isinstance(texts, str):
        texts = list(texts)
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise RegardError(f"texts must be str; got {wrong[0]!r}")
    given = {name: value for name, value in options.items() if value is not None}
    return {"input": texts, **given}


def error_of(status: int, content: bytes, headers: Mapping[str, str]) -> RequestFailed:
    """The error in a response, in OpenAI's form; another server may have sent anything."""
    message, code = f"the server answered with status {status}", ""
    try:
        found = json.loads(content)["error"]
        message, code = str(found["message"]), str(found.get("code", ""))
    except (ValueError, KeyError, TypeError):
        pass
    return RequestFailed(message, status=status, code=code, retry_after=_seconds(headers))


def unreachable(address: str, error: Exception) -> RequestFailed:
    """The error for a server that does not answer."""
    reason = str(error).partition("\n")[0] or type(error).__name__
    message = f"cannot reach {address}: {reason}; start it with `regard serve`"
    return RequestFailed(message, code="unreachable")


def timed_out(address: str, seconds: float) -> RequestFailed:
    """The error for a response that takes too long. It is not retried: the server is busy."""
    message = f"{address} did not answer within {seconds:g} s; raise timeout or send fewer texts"
    return RequestFailed(message, code="timeout")


def parse_event(line: str) -> dict[str, Any] | None:
    """The data of a line of server-sent events; None for other lines and the end."""
    if not line.startswith("data: ") or line == "data: [DONE]":
        return None
    event: dict[str, Any] = json.loads(line.removeprefix("data: "))
    if "error" in event:
        found = event["error"]
        raise RequestFailed(str(found["message"]), status=200, code=str(found["code"]))
    return event


def best_texts(outputs: list[list[Output]]) -> list[str]:
    """The text of the best output of each text."""
    return [answers[0]["text"] for answers in outputs]


def _seconds(headers: Mapping[str, str]) -> float | None:
    """The header Retry-After in seconds; a date is ignored."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
