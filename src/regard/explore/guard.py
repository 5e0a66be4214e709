"""The guard in front of the routes: access control, body limits and security headers.

A foreign web page can send requests to this machine under a host name that resolves to it (DNS
rebinding). So only this machine's own names are accepted; beyond it, a token is required.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from regard.explore.messages import MAX_BODY, HttpError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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
HEALTH = "/healthz"
YEAR = 365 * 24 * 3600


class Guard:
    """An ASGI application behind its checks: the host is one of `hosts`, or the token matches."""

    def __init__(
        self, app: App, *, hosts: frozenset[str], port: int, token: str | None = None
    ) -> None:
        self.app = app
        self.token = token
        self.port = port
        self.cookie = f"regard-{port}"
        self.hosts = {f"{host}:{port}" for host in hosts} | (set(hosts) if port == 80 else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":  # the server's start and stop
                await self.app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added = self._headers(scope["path"])
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        try:
            self._check_access(scope)
            if self._is_login(scope):
                await self._set_cookie(send_with_headers)
                return
            receive = await _limited(scope, receive)
        except HttpError as error:
            await _send_error(error, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)

    def _headers(self, path: str) -> list[tuple[bytes, bytes]]:
        cache = "no-store" if path.startswith("/api/") else "no-cache"  # pages are revalidated
        headers = {**HEADERS, "cache-control": cache}
        return [(name.encode(), value.encode()) for name, value in headers.items()]

    def _check_access(self, scope: Scope) -> None:
        """Raise unless the request is for this machine, or carries the token."""
        if self.token is None:
            host = _header(scope, b"host").lower()
            if host not in self.hosts:
                fix = f"open http://127.0.0.1:{self.port}/"
                message = f"this server does not serve host {host[:80]!r}; {fix}"
                raise HttpError(421, "wrong-host", message)
            return
        tokens = (_query_token(scope), self._cookie_token(scope))
        if scope["path"] != HEALTH and not any(self._is_token(token) for token in tokens):
            message = "the token is missing or wrong; open the address that the server printed"
            raise HttpError(403, "no-token", message)

    def _is_login(self, scope: Scope) -> bool:
        """Whether the printed address was opened: its token then moves into a cookie."""
        return (
            self.token is not None and scope["path"] == "/" and self._is_token(_query_token(scope))
        )

    async def _set_cookie(self, send: Send) -> None:
        cookie = f"{self.cookie}={self.token}; Path=/; Max-Age={YEAR}; HttpOnly; SameSite=Lax"
        headers = [
            (b"location", b"./"),
            (b"set-cookie", cookie.encode()),
            (b"content-length", b"0"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _cookie_token(self, scope: Scope) -> str:
        try:
            cookie = SimpleCookie(_header(scope, b"cookie")).get(self.cookie)
        except CookieError:
            return ""
        return cookie.value if cookie else ""

    def _is_token(self, text: str) -> bool:
        if self.token is None:
            return False
        return secrets.compare_digest(text.encode(), self.token.encode())


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _query_token(scope: Scope) -> str:
    """The token in the address."""
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]


async def _limited(scope: Scope, receive: Receive) -> Receive:
    """Read the body if it is JSON and small enough, and replay it to the application."""
    if scope["method"] in ("GET", "HEAD"):
        return receive
    kind = _header(scope, b"content-type").partition(";")[0].strip().lower()
    if scope["method"] == "POST" and kind != "application/json":  # no foreign form can send it
        reason = f"the body must be application/json; got {kind[:80]!r}"
        raise HttpError(415, "wrong-type", reason)
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        body, more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > MAX_BODY:
            text = f"the request has over {MAX_BODY:,} bytes; send less"
            raise HttpError(413, "too-large", text, {"connection": "close"})
    replay = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive_again() -> MutableMapping[str, Any]:
        return next(replay, None) or await receive()

    return receive_again


async def _send_error(error: HttpError, send: Send) -> None:
    body = json.dumps(error.content()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    pairs = [
        (name.encode(), value.encode()) for name, value in {**headers, **error.headers}.items()
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
