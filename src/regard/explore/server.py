"""The explorer's server and its guard: access control, body limits and security headers.

A foreign web page can send requests to this machine under a host name that resolves to it (DNS
rebinding). So only this machine's own names are accepted; beyond it, a token is required.
"""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from types import FrameType
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from regard.errors import RegardError
from regard.explore.app import create_app
from regard.explore.messages import MAX_BODY, HttpError
from regard.explore.model_store import ModelStore

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


PORT = 7341
LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})  # names of this machine only


class ExplorerServer(uvicorn.Server):
    """A uvicorn server that exits at once: it has no files to finish and nothing to drain."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Exit the process."""
        os._exit(0 if sig == signal.SIGINT else 128 + sig)


def serve(
    models: ModelStore, *, host: str = "127.0.0.1", port: int | None = None, browser: bool = True
) -> None:
    """Print the address, open it in a browser and serve until Ctrl-C.

    Beyond this machine the printed token is required."""
    listener, note = open_socket(host, port)
    number = listener.getsockname()[1]
    token = None if is_local(host) else secrets.token_urlsafe(24)
    name = f"[{host}]" if ":" in host else host
    guarded = Guard(create_app(models), hosts=LOCAL_NAMES | {name}, port=number, token=token)
    address = f"http://{_reachable_name(name)}:{number}/" + (f"?token={token}" if token else "")
    config = uvicorn.Config(
        guarded,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
    )
    server = ExplorerServer(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)  # uvicorn does the same once it runs
    with listener:
        names = ", ".join(model.name for model in models)
        print(f"{note}Regard serves {names} at {address} (Ctrl-C to stop)", flush=True)
        threading.Thread(target=_preload, args=(models,), daemon=True).start()
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.run(sockets=[listener])


def open_socket(host: str, port: int | None) -> tuple[socket.socket, str]:
    """A listening socket and a note for the user; if the default port is taken, any free one."""
    if port is not None and not 0 <= port <= 65_535:
        raise RegardError(f"--port must be from 0 to 65535; got {port}")
    try:
        return _listen(host, PORT if port is None else port), ""
    except OSError as error:
        if port is None and not isinstance(error, socket.gaierror):
            try:
                return _listen(host, 0), f"Port {PORT} is in use; using another one. "
            except OSError as second:
                error = second
        where = f"{host}:{PORT if port is None else port}"
        message = f"cannot listen on {where}: {error.strerror}; choose another --port or --host"
        raise RegardError(message) from None


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    """Listen at once: clients that connect before the server runs wait instead of failing."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def _reachable_name(name: str) -> str:
    """A name that a browser can open: 0.0.0.0 means every address of this machine."""
    return socket.gethostname() if name in ("0.0.0.0", "[::]") else name


def _preload(models: ModelStore) -> None:
    """Load torch and the first model in the background, so that the first trace is fast."""
    try:
        import regard.trace  # noqa: F401

        model = next(iter(models))
        with model.exclusive() as pipeline:
            pipeline(model.entry["example"])
    except RegardError:
        pass  # reported when the model is requested
