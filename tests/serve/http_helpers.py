"""A fake service with known answers, a real HTTP server on a free port, and raw requests."""

import asyncio
import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator

from regard.serve.access_rules import AccessRules
from regard.serve.http_app import HttpApp
from regard.serve.http_server import ServerProcess
from regard.serve.serve_log import ServeLog
from regard.serve.serve_metrics import ServeMetrics
from regard.serve.service import ModelInfo
from regard.serve.service_errors import InvalidRequest
from regard.web.access import LOCAL_NAMES, host_headers
from regard.web.http_limits import HttpLimits

TIMEOUT = 60  # seconds: a bound for a hung server, never a measure of speed


def answer(text: str, *, alignment: bool = False) -> dict:
    """The answer to a text: its letters in reverse order."""
    tokens = list(reversed(text))
    found = {"text": text[::-1], "tokens": tokens, "logps": [-0.5] * (len(tokens) + 1)}
    logp = -0.5 * (len(tokens) + 1)
    found |= {"logp": logp, "score": logp, "confidence": 0.25, "unknown": []}
    return found | ({"alignment": [[0, 0]]} if alignment else {})


class FakeService:
    """Reverses texts. `error` is raised instead, if set; `gate` holds all answers back."""

    def __init__(self, *names: str, languages: tuple[str, ...] = ()) -> None:
        self.models = {
            name: ModelInfo(name, f"print-{name}", 1_000.0, "native", "cpu", {}, languages)
            for name in names or ("reverse",)
        }
        self.ready = True
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.calls: list[tuple] = []
        self.cancelled = threading.Event()
        self.started = threading.Event()
        self.drained = False
        self.waiting = dict.fromkeys(self.models, 0)
        self.worker_pids = {name: [1, 2] for name in self.models}

    async def start(self) -> None:
        """Nothing to start."""

    async def drain(self) -> None:
        self.drained = True

    async def reload(self, name: str) -> None:
        self.calls.append(("reload", name))

    async def generate(self, model, texts, options, *, alignment=False, deadline=None):
        self.calls.append((model, list(texts), dict(options), alignment, deadline))
        self.started.set()
        if self.error:
            raise self.error
        if self.gate:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if any("refuse" in text for text in texts):
            raise InvalidRequest("the text cannot be used")
        count = options.get("n_best", 1)
        return [[answer(text, alignment=alignment)] * count for text in texts]

    async def generate_json(self, *arguments, **options):
        found = await self.generate(*arguments, **options)
        return [json.dumps(answers).encode() for answers in found]

    async def stream(self, model, text, options, *, deadline=None):
        self.calls.append((model, text, dict(options), deadline))
        if self.error and not text:
            raise self.error
        for piece in re.findall("..?", text[::-1]):
            yield {"piece": piece}
        if self.error:
            raise self.error
        yield {"answer": answer(text)}


class Server:
    """A running server: its application, port and log lines."""

    def __init__(self, process: ServerProcess, port: int, log: int) -> None:
        self.app, self.port, self._log = process.app, port, log
        self.table, app = process.table, process.app
        self.service = app.service
        self.url = f"http://127.0.0.1:{port}"

    def log_lines(self) -> list[dict]:
        self.app.log.close()
        return [json.loads(line) for line in os.read(self._log, 1_000_000).splitlines()]


@contextlib.contextmanager
def running(
    service=None, *, token=None, origins=(), limits=None, texts=False, local=True
) -> Iterator[Server]:
    """A server in a thread, stopped at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    read, write = os.pipe()
    os.set_blocking(write, False)
    rules = AccessRules(
        host_headers(LOCAL_NAMES, port) if local else None, port, token, frozenset(origins)
    )
    app = HttpApp(
        service or FakeService(),
        rules,
        metrics=ServeMetrics(),
        log=ServeLog(write, texts=texts),
        limits=limits or HttpLimits(idle_seconds=20),
    )
    process = ServerProcess(app, listener)
    up, loops = threading.Event(), []

    async def serve() -> None:
        loops.append((asyncio.get_running_loop(), stop := asyncio.Event()))
        async with process.listening():
            up.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert up.wait(TIMEOUT)
        yield Server(process, port, read)
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(TIMEOUT)
        app.log.close()
        os.close(read)
        os.close(write)
        assert not thread.is_alive()


def exchange(port: int, content: bytes, *, timeout: float = TIMEOUT) -> bytes:
    """Send bytes over a new connection and read until the server closes it."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(content)
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                parts.append(part)
        return b"".join(parts)


def post(
    port: int,
    path: str,
    body: bytes | str | dict | list,
    *,
    kind: str = "application/json",
    headers: dict[str, str] | None = None,
    method: str = "POST",
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a request."""
    if isinstance(body, dict | list):
        body = json.dumps(body)
    content = body.encode() if isinstance(body, str) else body
    lines = {"host": f"127.0.0.1:{port}", "content-type": kind, **(headers or {})}
    lines |= {"content-length": str(len(content)), "connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    raw = f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + content
    return split(exchange(port, raw))


def get(port: int, path: str, *, method: str = "GET", **headers: str):
    """Status, headers and body of a request without a body."""
    lines = {"host": f"127.0.0.1:{port}", **headers, "connection": "close"}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return split(exchange(port, f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1")))


def split(response: bytes) -> tuple[int, dict[str, str], bytes]:
    """A raw response as status, headers and body; chunks are joined."""
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    if headers.get("transfer-encoding") == "chunked":
        joined, rest = b"", body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            joined, rest = joined + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        body = joined
    return int(first.split()[1]), headers, body


def error_of(reply: tuple[int, dict[str, str], bytes], status: int) -> dict:
    """The error of a reply in OpenAI's form, which must have this status."""
    assert reply[0] == status, reply
    body = json.loads(reply[2])
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "\n" not in body["error"]["message"]
    return body["error"]
