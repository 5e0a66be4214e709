"""Connections of explorer and server: bounded in number, header size and idle time.

uvicorn bounds the time between requests only. Here a client that sends its headers slowly, never
finishes a request or does not read its response is disconnected as well, and a client that goes
away cancels its request.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import sys
from typing import Any

from regard.web.http_limits import HttpLimits

CONNECTION = "regard.connection"  # key of the connection in the state of a request
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
)
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
)


class GatheringTransport:
    """A transport that sends what is written in one pass of the event loop together.

    uvicorn writes headers and body separately: two system calls, and a client that wakes up twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data at the end of this pass."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send everything, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._transport.write(data)


class ConnectionTable:
    """All open connections of a server and their limits."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.open: set[Any] = set()

    def close_idle(self, now: float) -> int:
        """Close connections that wait too long for their client; returns their number."""
        late = [one for one in self.open if _idle_since(one, now) < now - self.limits.idle_seconds]
        for connection in late:
            connection.transport.abort()
        return len(late)

    async def watch(self) -> None:
        """Close idle connections until cancelled."""
        pause = min(1.0, self.limits.idle_seconds / 4)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(pause)
            self.close_idle(loop.time())


def protocol_class(table: ConnectionTable) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol with the limits of `table`; parsed by httptools where installed."""
    parent: Any = _parser_protocol()

    class Connection(parent):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.app_state: dict[str, Any] = {**self.app_state, CONNECTION: self}
            self.task: asyncio.Task[Any] | None = None  # runs the current request
            self.waiting = self.paused = self.loop.time()
            self.unparsed = 0  # bytes since the last complete headers

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(GatheringTransport(transport, self.loop))
            if len(table.open) >= table.limits.connections:
                text = b"all %d connections are in use; retry later" % table.limits.connections
                _refuse(self.transport, REFUSAL, b"overloaded", text)
                return
            table.open.add(self)
            _limit_unacknowledged(transport, table.limits.idle_seconds)

        def connection_lost(self, error: Exception | None) -> None:
            table.open.discard(self)
            super().connection_lost(error)
            if self.task is not None:
                self.task.cancel()

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self.cycle is None or self.cycle.response_complete:
                self.unparsed += len(data)
                if self.unparsed > table.limits.header_bytes + len(data):
                    text = b"the headers have over %d bytes" % table.limits.header_bytes
                    _refuse(self.transport, TOO_LONG, b"too_large", text)
                    return
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self.unparsed = 0

        def on_response_complete(self) -> None:
            self.waiting = self.loop.time()
            super().on_response_complete()

        def pause_writing(self) -> None:
            self.paused = self.loop.time()
            super().pause_writing()

    return Connection


def _idle_since(connection: Any, now: float) -> float:
    """The time since when a connection waits for its client; `now` if it does not."""
    if connection.flow is not None and connection.flow.write_paused:
        return float(connection.paused)
    if connection.cycle is None or connection.cycle.response_complete:
        return float(connection.waiting)
    return now


def _refuse(transport: Any, form: bytes, code: bytes, message: bytes) -> None:
    """Write an error and close."""
    content = b'{"error":{"message":"%b","type":"server_error","param":null,"code":"%b"}}'
    body = content % (message, code)
    transport.write(form % (len(body), body))
    transport.close()


def _parser_protocol() -> Any:
    if importlib.util.find_spec("httptools"):
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

        return HttpToolsProtocol
    from uvicorn.protocols.http.h11_impl import H11Protocol

    return H11Protocol


def _limit_unacknowledged(transport: asyncio.Transport, seconds: float) -> None:
    """Let the kernel drop a peer that acknowledges nothing (Linux)."""
    connection = transport.get_extra_info("socket")
    if sys.platform == "linux" and connection is not None:
        option = socket.TCP_USER_TIMEOUT
        connection.setsockopt(socket.IPPROTO_TCP, option, int(seconds * 1000))
