"""Who may send requests, and how much: checks of Host, Origin, token and body.

A foreign web page can send requests to this machine under a host name that resolves to it (DNS
rebinding), or from its own origin (cross-site requests). So only this machine's own names and
origins are accepted; beyond it, a token is required.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from regard.errors import RegardError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})  # names of this machine only
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class HttpError(RegardError):
    """A failed request: status, a code for programs, and a message with object, value and fix."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}
        self.field: str | None = None  # of the request's body

    def content(self) -> dict[str, Any]:
        """The body of the response, in the same form for all errors."""
        return {"error": {"code": self.code, "message": str(self)}}


class ClientDisconnected(Exception):
    """The client closed its connection before its request was complete."""


def header(scope: Scope, name: bytes) -> str:
    """The value of a request header, or an empty text."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return ""


def host_headers(names: Collection[str], port: int) -> frozenset[str]:
    """The Host headers that name this server: each name with the port, which is optional for 80."""
    return frozenset({f"{name}:{port}" for name in names} | (set(names) if port == 80 else set()))


def check_host(scope: Scope, hosts: Collection[str], port: int) -> None:
    """Raise unless the Host header is one of `hosts`: another name may resolve to this machine."""
    host = header(scope, b"host").lower()
    if host not in hosts:
        fix = f"open http://127.0.0.1:{port}/"
        message = f"this server does not serve host {host[:80]!r}; {fix}"
        raise HttpError(421, "wrong-host", message)


def check_origin(scope: Scope, allowed: Collection[str] = ()) -> None:
    """Raise if a page of another site sends the request: browsers name its origin in a header.

    A page of this server has the origin http://HOST or https://HOST (behind a proxy); programs send
    none. Where the origin is left out, a browser still says that a request comes from another site
    (Sec-Fetch-Site); one that only opens a page is accepted. Call it after the Host or the token
    was checked.
    """
    origin = header(scope, b"origin").lower()
    if origin in allowed and origin:
        return
    foreign = header(scope, b"sec-fetch-site").lower() in ("cross-site", "same-site")
    if not origin and not (foreign and scope["method"] not in ("GET", "HEAD", "OPTIONS")):
        return
    if not origin or origin.partition("://")[2] != header(scope, b"host").lower():
        page = repr(origin[:80]) if origin else "another site"
        message = f"pages of {page} may not use this server"
        raise HttpError(403, "wrong-origin", message)


def is_token(text: str, token: str | None) -> bool:
    """Whether a text is the token; compared in constant time. Without a token, nothing is."""
    return token is not None and secrets.compare_digest(text.encode(), token.encode())


async def read_body(receive: Receive, limit: int, seconds: float | None = None) -> bytes:
    """The body of a request of at most `limit` bytes, received within `seconds`."""
    if seconds is None:
        return await _receive_all(receive, limit)
    try:
        async with asyncio.timeout(seconds):
            return await _receive_all(receive, limit)
    except TimeoutError:
        text = f"the body did not arrive within {seconds:g} seconds; send it at once"
        raise HttpError(408, "too-slow", text, {"connection": "close"}) from None


async def _receive_all(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnected
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > limit:
            text = f"the request has over {limit:,} bytes; send less"
            raise HttpError(413, "too-large", text, {"connection": "close"})
    return parts[0] if len(parts) == 1 else b"".join(parts)
