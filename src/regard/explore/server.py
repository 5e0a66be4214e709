"""The explorer's server and its guard: access control, body limits and security headers.

A foreign web page can send requests to this machine under a host name that resolves to it (DNS
rebinding). So only this machine's own names are accepted; beyond it, a token is required.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import MutableMapping
from http.cookies import CookieError, SimpleCookie
from types import FrameType
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from anyio import to_thread

from regard.errors import RegardError
from regard.explore.app import create_app
from regard.explore.messages import MAX_BODY
from regard.explore.model_store import ModelStore
from regard.web.access import (
    HEADERS,
    LOCAL_NAMES,
    App,
    ClientDisconnected,
    HttpError,
    Receive,
    Scope,
    Send,
    check_host,
    check_origin,
    header,
    host_headers,
    is_token,
    read_body,
)
from regard.web.allocator import limit_arenas
from regard.web.connections import ConnectionTable, protocol_class
from regard.web.http_limits import HttpLimits
from regard.web.listener import bracketed, is_local, open_socket, reachable_name

PORT = 7341
HEALTH = "/healthz"
YEAR = 365 * 24 * 3600
THREADS = 128  # requests at a time: computations that wait in a queue do not hold up the others
LIMITS = HttpLimits(body_bytes=MAX_BODY, connections=256)


class Guard:
    """An ASGI application behind its checks: the host is one of `hosts`, or the token matches."""

    def __init__(
        self, app: App, *, hosts: frozenset[str], port: int, token: str | None = None
    ) -> None:
        self.app = app
        self.token = token
        self.port = port
        self.cookie = f"regard-{port}"
        self.hosts = host_headers(hosts, port)

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
            if scope["method"] not in ("GET", "HEAD"):
                check_origin(scope)
            if self._is_login(scope):
                await self._set_cookie(send_with_headers)
                return
            receive = await _limited(scope, receive)
        except HttpError as error:
            await _send_error(error, scope, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)

    def _headers(self, path: str) -> list[tuple[bytes, bytes]]:
        cache = "no-store" if path.startswith("/api/") else "no-cache"  # pages are revalidated
        headers = {**HEADERS, "cache-control": cache}
        return [(name.encode(), value.encode()) for name, value in headers.items()]

    def _check_access(self, scope: Scope) -> None:
        """Raise unless the request is for this machine, or carries the token."""
        if self.token is None:
            check_host(scope, self.hosts, self.port)
            return
        tokens = (_query_token(scope), self._cookie_token(scope))
        if scope["path"] != HEALTH and not any(is_token(token, self.token) for token in tokens):
            message = "the token is missing or wrong; open the address that the server printed"
            raise HttpError(403, "no-token", message)

    def _is_login(self, scope: Scope) -> bool:
        """Whether the printed address was opened: its token then moves into a cookie."""
        return (
            self.token is not None
            and scope["path"] == "/"
            and is_token(_query_token(scope), self.token)
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
            cookie = SimpleCookie(header(scope, b"cookie")).get(self.cookie)
        except CookieError:
            return ""
        return cookie.value if cookie else ""


def _query_token(scope: Scope) -> str:
    """The token in the address."""
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]


async def _limited(scope: Scope, receive: Receive) -> Receive:
    """Read the body if it is JSON and small enough, and replay it to the application."""
    if scope["method"] in ("GET", "HEAD"):
        return receive
    kind = header(scope, b"content-type").partition(";")[0].strip().lower()
    if scope["method"] == "POST" and kind != "application/json":  # no foreign form can send it
        reason = f"the body must be application/json; got {kind[:80]!r}"
        raise HttpError(415, "wrong-type", reason)
    try:
        body = await read_body(receive, MAX_BODY, LIMITS.idle_seconds)
    except ClientDisconnected:
        body = b""  # refused as any other incomplete request; nobody reads the response
    replay = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive_again() -> MutableMapping[str, Any]:
        return next(replay, None) or await receive()

    return receive_again


async def _send_error(error: HttpError, scope: Scope, send: Send) -> None:
    """Send an error: as a sentence to a person who opened a page, otherwise as JSON."""
    page = scope["method"] == "GET" and "text/html" in header(scope, b"accept")
    body = f"{error}\n".encode() if page else json.dumps(error.content()).encode()
    kind = "text/plain; charset=utf-8" if page else "application/json"
    headers = {"content-type": kind, "content-length": str(len(body))}
    pairs = [
        (name.encode(), value.encode()) for name, value in {**headers, **error.headers}.items()
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


class ExplorerServer(uvicorn.Server):
    """A uvicorn server that exits at once: it has no files to finish and nothing to drain.

    It closes connections whose client sends nothing, part of a request, or reads no response.
    """

    def __init__(self, app: App, limits: HttpLimits = LIMITS) -> None:
        self.table = ConnectionTable(limits)
        config = uvicorn.Config(
            app,
            http=protocol_class(self.table),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
        )
        super().__init__(config)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, and close idle connections meanwhile."""
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        watching = asyncio.create_task(self.table.watch())
        try:
            await super().serve(sockets)
        finally:
            watching.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Exit the process."""
        os._exit(0 if sig == signal.SIGINT else 128 + sig)


def serve(
    models: ModelStore,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    page: str = "",
) -> None:
    """Print the address, open it in a browser and serve until Ctrl-C.

    `page` is the part of the address after `/`. Beyond this machine the printed token is required.
    """
    limit_arenas()  # before other threads start
    listener, note = open_socket(host, port, PORT)
    number = listener.getsockname()[1]
    token = None if is_local(host) else secrets.token_urlsafe(24)
    name = bracketed(host)
    guarded = Guard(create_app(models), hosts=LOCAL_NAMES | {name}, port=number, token=token)
    address = (
        f"http://{reachable_name(name)}:{number}/" + (f"?token={token}" if token else "") + page
    )
    server = ExplorerServer(guarded)
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, server.handle_exit)  # uvicorn does the same once it runs
    with listener:
        names = ", ".join(model.name for model in models)
        print(f"{note}Regard serves {names} at {address} (Ctrl-C to stop)", flush=True)
        threading.Thread(target=_preload, args=(models,), daemon=True).start()
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.run(sockets=[listener])


def _preload(models: ModelStore) -> None:
    """Load torch and the first model in the background, so that the first trace is fast."""
    try:
        import regard.trace  # noqa: F401

        model = next(iter(models))
        with model.exclusive() as pipeline:
            pipeline(model.entry["example"])
    except RegardError:
        pass  # reported when the model is requested
