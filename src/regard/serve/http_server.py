"""The server process: listens, starts the service, and stops it on a signal.

SIGTERM and SIGINT drain: readiness fails, new requests are refused, accepted ones are answered. A
second signal exits at once. SIGHUP reloads all models.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import uvicorn

from regard.errors import RegardError
from regard.serve.http_app import HttpApp
from regard.serve.service import Service
from regard.web.connections import ConnectionTable, protocol_class
from regard.web.file_limit import connections_within_files

KEEP_ALIVE = 75  # seconds that an idle connection is kept, at most
GRACE = 10  # seconds for clients to read their responses once the service has drained
STOPPING = (signal.SIGTERM, signal.SIGINT)


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers of its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `ServerProcess`."""
        yield


class ServerProcess:
    """Runs an application and its service until a signal arrives."""

    def __init__(self, app: HttpApp, listener: socket.socket) -> None:
        self.app = app
        self.service: Service = app.service
        self.listener = listener
        most = connections_within_files(app.limits.connections)
        self.table = ConnectionTable(replace(app.limits, connections=most))
        self.signal: signal.Signals | None = None
        self._stop: asyncio.Event = asyncio.Event()
        self._reloads: set[asyncio.Task[None]] = set()
        app.metrics.connections.set_function(lambda: len(self.table.open))

    def run(self, announce: Callable[[], None]) -> int:
        """Serve; returns the exit status: 128 + the signal that ended it."""
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._run(announce))
        return 128 + self.signal if self.signal else 0

    async def _run(self, announce: Callable[[], None]) -> None:
        self._handle_signals()
        async with self.listening():
            start = asyncio.create_task(self.service.start())
            stop = asyncio.create_task(self._stop.wait())
            await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                await start  # raises if a model cannot be served
                announce()
                self.app.log.write("ready", models=list(self.service.models), pid=os.getpid())
                await stop
            stop.cancel()
            start.cancel()
            self.app.log.write("draining", signal=self.signal.name if self.signal else None)
            await self.service.drain()
        self.app.log.write("stopped")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Answer HTTP from now on: before all models are loaded, and while the service drains."""
        server = HttpServer(self._config())
        serving = asyncio.create_task(server.serve(sockets=[self.listener]))
        watching = asyncio.create_task(self.table.watch())
        try:
            yield
        finally:
            watching.cancel()
            server.should_exit = True
            await serving

    def _config(self) -> uvicorn.Config:
        limits = self.app.limits
        return uvicorn.Config(
            self.app,
            http=protocol_class(self.table),
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # the application logs requests and errors itself
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=2_048,
            timeout_keep_alive=int(min(KEEP_ALIVE, max(1, limits.idle_seconds))),
            timeout_graceful_shutdown=GRACE,
        )

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self.reload_all)

    def _end(self, number: signal.Signals) -> None:
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        self._stop.set()

    def reload_all(self) -> None:
        """Load all bundles again, one after the other."""
        task = asyncio.get_running_loop().create_task(self._reload_all())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload_all(self) -> None:
        for name in list(self.service.models):
            try:
                await self.service.reload(name)
                self.app.log.write("reloaded", model=name)
            except RegardError as error:
                self.app.log.write("reload-failed", model=name, error=str(error))
                with contextlib.suppress(OSError):
                    print(f"regard: cannot reload {name}: {error}", file=sys.stderr, flush=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
