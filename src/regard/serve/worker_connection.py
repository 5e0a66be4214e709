"""WorkerConnection: the service's connection to one worker process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Protocol, cast

from regard.serve.frames import FrameBuffer, Kind, Message, pack
from regard.serve.request_queue import TextBatch


class WorkerOwner(Protocol):
    """Receives what a worker sends, and its end."""

    def worker_frame(self, worker: WorkerConnection, frame: Message) -> None:
        """A message of the worker."""

    def worker_lost(self, worker: WorkerConnection, *, read_all: bool) -> None:
        """The connection is closed, by the worker's death or by `close`; `read_all` if the worker
        had read everything that was sent."""


class WorkerConnection(asyncio.Protocol):
    """A worker, which runs one batch at a time. `ready` is done when it can."""

    def __init__(self, owner: WorkerOwner, pid: int, has_ended: Callable[[int], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner, self._has_ended = owner, has_ended
        self._buffer = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self.pid = pid
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.closing = False
        self.batch: TextBatch | None = None
        self.batches = 0  # answered ones
        self._unsent = False  # whether the connection ended before all was written

    @classmethod
    async def open(
        cls,
        owner: WorkerOwner,
        connection: socket.socket,
        pid: int,
        has_ended: Callable[[int], bool],
    ) -> WorkerConnection:
        """Connect to a worker on this socket."""
        worker = cls(owner, pid, has_ended)
        await worker._loop.create_unix_connection(lambda: worker, sock=connection)
        return worker

    def run(self, batch: TextBatch, now: float, grace: float) -> None:
        """Send a batch. A worker that has not answered `grace` seconds after all its deadlines
        hangs and is killed."""
        assert self._transport is not None
        assert self.batch is None
        self.batch, batch.sent = batch, now
        kind = Kind.BATCH if batch.stream is None else Kind.STREAM
        self._unsent = self._transport.is_closing()  # a write would be ignored
        self._transport.write(pack(kind, batch.id, batch.body()))
        delay = max(0.0, batch.deadline - now) + grace
        self._watchdog = self._loop.call_later(delay, self.kill)

    def finish(self) -> TextBatch:
        """The batch that was answered; the worker is idle then."""
        assert self.batch is not None
        batch, self.batch = self.batch, None
        self.batches += 1
        self._stop_watchdog()
        return batch

    def cancel_stream(self, batch: TextBatch) -> None:
        """Stop the stream that the worker runs."""
        if self.batch is batch and self._transport is not None:
            self._transport.write(pack(Kind.CANCEL, batch.id))

    def close(self) -> None:
        """Close the connection; the worker ends then."""
        self.closing = True
        if self._transport is not None:
            self._transport.close()

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        if not self._has_ended(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own

    def data_received(self, data: bytes) -> None:
        """Pass on every complete message."""
        for frame in self._buffer.feed(data):
            if frame.kind == Kind.READY:
                self.ready.set_result(None)
            else:
                self._owner.worker_frame(self, frame)

    def eof_received(self) -> None:
        """Note whether the worker ended before all was written to it."""
        assert self._transport is not None
        self._unsent = self._unsent or self._transport.get_write_buffer_size() > 0

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the owner. A socket that is closed before all was read reports a reset."""
        self._stop_watchdog()
        if not self.ready.done():
            self.ready.set_exception(ConnectionResetError("the worker ended at its start"))
            self.ready.exception()  # nobody may be waiting for it
        self._owner.worker_lost(self, read_all=error is None and not self._unsent)

    def _stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
