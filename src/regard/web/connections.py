"""Connections of explorer and server: bounded in number, header size and idle time.

uvicorn bounds the time between requests only. Here a client that sends its headers slowly, never
finishes a request or does not read its response is disconnected as well, and a client that goes
away cancels its request.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regard.web.http_limits import HttpLimits

CONNECTION = "regard.connection"  # key of the connection in the state of a request
LINGER = 5.0  # seconds that a client has to read a refusal while it still sends
LINGERING = 1_024  # connections that may be refused in this way at a time; more are reset
REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
)
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
)


class GatheringTransport:
    """A transport that sends what is written in one pass of the event loop together.

    uvicorn writes headers and body separately: two system calls, and a client that wakes up twice.
    A socket that is closed with unread data is reset, and the client loses the response. If the
    client still sends (`is_sending`), only the output is closed, and the protocol discards the
    rest.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        is_sending: Callable[[], bool],
    ) -> None:
        self._transport, self._loop, self._is_sending = transport, loop, is_sending
        self._parts: list[bytes] = []
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data at the end of this pass; nothing more once the output is closed."""
        if self._lingers:
            return
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send everything, then close."""
        self._flush()
        if self._is_sending():
            self._linger()
        else:
            self._transport.close()

    def _linger(self) -> None:
        """Close when the client does, or soon."""
        if self.is_closing():
            return
        self._lingers = True
        self._transport.write_eof()
        self._transport.resume_reading()  # uvicorn pauses long bodies
        self._loop.call_later(LINGER, self._transport.abort)

    def is_closing(self) -> bool:
        """Whether nothing more is sent or understood."""
        return self._lingers or self._transport.is_closing()

    def _flush(self) -> None:
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._transport.write(data)


class ConnectionTable:
    """All open connections of a server and their limits."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.open: set[Any] = set()
        self.refused: set[Any] = set()  # connections above the limit that read their refusal

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


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP protocol, parsed by httptools, within the limits of its table."""

    table: ConnectionTable

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app_state: dict[str, Any] = {**self.app_state, CONNECTION: self}
        self.task: asyncio.Task[Any] | None = None  # runs the current request
        self.waiting = self.paused = self.loop.time()
        self.unparsed = 0  # bytes since the last complete headers

    def connection_made(self, transport: Any) -> None:
        gathering = GatheringTransport(transport, self.loop, self.is_sending)
        super().connection_made(cast(asyncio.Transport, gathering))
        if len(self.table.open) >= self.table.limits.connections:
            self._refuse_connection()
            return
        self.table.open.add(self)
        _limit_unacknowledged(transport, self.table.limits.idle_seconds)

    def is_sending(self) -> bool:
        """Whether the client has not sent the whole request."""
        in_body = self.cycle is not None and self.cycle.more_body
        return in_body or self.unparsed > 0 or self in self.table.refused

    def _refuse_connection(self) -> None:
        if len(self.table.refused) >= LINGERING:
            self.transport.abort()
            return
        self.table.refused.add(self)
        text = b"all %d connections are in use; retry later" % self.table.limits.connections
        _refuse(self.transport, REFUSAL, b"overloaded", text)

    def connection_lost(self, error: Exception | None) -> None:
        self.table.open.discard(self)
        self.table.refused.discard(self)
        super().connection_lost(error)
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.unparsed += len(data)
            if self.unparsed > self.table.limits.header_bytes + len(data):
                text = b"the headers have over %d bytes" % self.table.limits.header_bytes
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


def protocol_class(table: ConnectionTable) -> type[asyncio.Protocol]:
    """The class of the connections in `table`, as uvicorn wants it."""
    return type("BoundConnection", (Connection,), {"table": table})


def _idle_since(connection: Any, now: float) -> float:
    """The time since when a connection waits for its client; `now` if it does not."""
    if connection.flow is not None and connection.flow.write_paused:
        return float(connection.paused)
    if connection.cycle is None or connection.cycle.response_complete:
        return float(connection.waiting)
    return now


def _refuse(transport: Any, form: bytes, code: bytes, message: bytes) -> None:
    """Write an error and close as soon as the client has read it."""
    content = b'{"error":{"message":"%b","type":"server_error","param":null,"code":"%b"}}'
    body = content % (message, code)
    transport.write(form % (len(body), body))
    transport.close()


def _limit_unacknowledged(transport: asyncio.Transport, seconds: float) -> None:
    """Let the kernel drop a peer that acknowledges nothing (Linux)."""
    connection = transport.get_extra_info("socket")
    if sys.platform == "linux" and connection is not None:
        option = socket.TCP_USER_TIMEOUT
        connection.setsockopt(socket.IPPROTO_TCP, option, int(seconds * 1000))
