"""Guard: what stands between the network and the routes. Who may ask, how much, and what every answer carries.

A page elsewhere on the web can send requests to this machine, under a name of its own that it lets point here (DNS
rebinding). So only this machine's own names are answered; beyond it, only who knows the token.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from regard.explore.refusals import Refusal
from regard.explore.requests import BODY

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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
ALIVE = "/healthz"
YEAR = 365 * 24 * 3600


class Guard:
    """An application behind its checks. `hosts` are the names it is known by; with a `token`, any name is right."""

    def __init__(self, app: App, *, hosts: frozenset[str], port: int, token: str | None = None) -> None:
        self.app, self.token, self.cookie, self.port = app, token, f"regard-{port}", port
        self.hosts = {f"{host}:{port}" for host in hosts} | (set(hosts) if port == 80 else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":  # the server's own start and stop
                await self.app(scope, receive, send)
            return

        async def carry(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._headers(scope["path"])]
            await send(message)

        try:
            self._known(scope)
            if self._entered(scope):
                await self._welcome(carry)
                return
            receive = await _bounded(scope, receive)
        except Refusal as refusal:
            await _refuse(refusal, carry)
            return
        await self.app(scope, receive, carry)

    def _headers(self, path: str) -> list[tuple[bytes, bytes]]:
        fresh = "no-store" if path.startswith("/api/") else "no-cache"  # a page may be kept, if it is asked for anew
        return [(name.encode(), value.encode()) for name, value in {**HEADERS, "cache-control": fresh}.items()]

    def _known(self, scope: Scope) -> None:
        """Raise unless the request is for this machine, or shows the token."""
        if self.token is None:
            host = _header(scope, b"host").lower()
            if host not in self.hosts:
                way = f"open http://127.0.0.1:{self.port}/"
                raise Refusal(421, "wrong-host", f"this server does not answer for host {host[:80]!r}; {way}")
        elif scope["path"] != ALIVE and not any(self._is_token(word) for word in (_asked(scope), self._held(scope))):
            raise Refusal(403, "no-token", "the token is missing or wrong; open the address that the server printed")

    def _entered(self, scope: Scope) -> bool:
        """Whether a person opened the printed address: the token then moves from the address to a cookie."""
        return self.token is not None and scope["path"] == "/" and self._is_token(_asked(scope))

    async def _welcome(self, send: Send) -> None:
        cookie = f"{self.cookie}={self.token}; Path=/; Max-Age={YEAR}; HttpOnly; SameSite=Lax"
        headers = [(b"location", b"./"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _held(self, scope: Scope) -> str:
        try:
            held = SimpleCookie(_header(scope, b"cookie")).get(self.cookie)
        except CookieError:
            return ""
        return held.value if held else ""

    def _is_token(self, word: str) -> bool:
        return self.token is not None and secrets.compare_digest(word.encode(), self.token.encode())


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _asked(scope: Scope) -> str:
    """The token in the address."""
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]


async def _bounded(scope: Scope, receive: Receive) -> Receive:
    """The body read whole, if it is small and JSON; what comes after it is received as before."""
    if scope["method"] in ("GET", "HEAD"):
        return receive
    kind = _header(scope, b"content-type").partition(";")[0].strip().lower()
    if scope["method"] == "POST" and kind != "application/json":  # the one kind that no foreign form can send
        raise Refusal(415, "wrong-type", f"the body must be application/json; got {kind[:80]!r}")
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        body, more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > BODY:
            raise Refusal(413, "too-large", f"the request has over {BODY:,} bytes; send less", {"connection": "close"})
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> MutableMapping[str, Any]:
        return next(given, None) or await receive()

    return again


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = json.dumps(refusal.content()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
