"""LoaderProcess: the service's handle of a process that loads a model and forks workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from regard.serve.frames import FrameBuffer, Kind, Message, pack, pack_json
from regard.serve.service_errors import LoadFailed
from regard.serve.service_types import ModelSpec

COMMAND = [sys.executable, "-m", "regard.serve.model_loader"]
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
ENVIRONMENT = {**dict.fromkeys(ONE_THREAD, "1"), "TOKENIZERS_PARALLELISM": "false"}
STATUS_SECONDS = 2.0  # the longest wait for the exit status of a worker
STOP_SECONDS = 5.0  # the longest wait for the end of a process before it is killed


class LoaderLost(Exception):
    """The loader process ended."""


class LoaderProcess:
    """A loader process. `facts` describe the loaded model. `lost` is called when it ends without
    being stopped."""

    def __init__(self, spec: ModelSpec, device: str, lost: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._buffer = FrameBuffer()
        self._loaded: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._forks: deque[asyncio.Future[int]] = deque()
        self._statuses: dict[int, asyncio.Future[int]] = {}
        self.closed = False
        self._control, theirs = socket.socketpair()
        try:
            self._process = _spawn(theirs)
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._read)
        folder = str(spec.folder)
        how: dict[str, Any] = {"int8": spec.int8, "engine": spec.engine, "device": device}
        self._control.send(pack_json(Kind.LOAD, folder=folder, **how))

    @property
    def pid(self) -> int:
        """The process id of the loader."""
        return self._process.pid

    async def load(self) -> dict[str, Any]:
        """The facts of the model when it is loaded; raises `LoadFailed` or `LoaderLost`."""
        return await self._loaded

    async def fork(self) -> tuple[socket.socket, int]:
        """Start a worker: its socket and its process id."""
        if self.closed:
            raise LoaderLost
        ours, theirs = socket.socketpair()
        forked: asyncio.Future[int] = self._loop.create_future()
        self._forks.append(forked)
        try:
            with theirs:
                socket.send_fds(self._control, [pack(Kind.FORK)], [theirs.fileno()])
            pid = await forked
        except OSError:
            ours.close()
            raise LoaderLost from None
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return ours, pid

    async def exit_status(self, pid: int) -> int:
        """The exit status of a worker that ended; −9 if the loader cannot report it any more."""
        try:
            return await asyncio.wait_for(self._status(pid), STATUS_SECONDS)
        except (TimeoutError, LoaderLost):
            _reap_orphan(pid)
            return -9
        finally:
            self._statuses.pop(pid, None)

    def has_ended(self, pid: int) -> bool:
        """Whether the loader reported the end of a worker."""
        return pid in self._statuses and self._statuses[pid].done()

    async def stop(self) -> None:
        """Close the control socket and wait until the process, whose workers are gone, ends."""
        self._close()
        try:
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _status(self, pid: int) -> asyncio.Future[int]:
        status = self._statuses.get(pid)
        if status is None:
            status = self._statuses[pid] = self._loop.create_future()
            if self.closed:
                status.set_exception(LoaderLost())
        return status

    def _read(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for frame in self._buffer.feed(data):
            self._receive(frame)
        if not data:
            self._close()
            self._loop.run_in_executor(None, self._process.wait)  # no zombie stays
            self._lost()

    def _receive(self, frame: Message) -> None:
        if frame.kind == Kind.READY:
            self._loaded.set_result(frame.json())
        elif frame.kind == Kind.FAILED:
            self._loaded.set_exception(LoadFailed(frame.json()["message"]))
        elif frame.kind == Kind.FORKED:
            forked = self._forks.popleft()
            if not forked.done():
                forked.set_result(frame.id)
        elif frame.kind == Kind.DIED:
            status = self._status(frame.id)
            if not status.done():
                status.set_result(frame.json()["status"])

    def _close(self) -> None:
        """Close the control socket; whoever waits for the loader learns that it is gone."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        waiting: list[asyncio.Future[Any]] = [self._loaded, *self._forks, *self._statuses.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(LoaderLost())
                future.exception()  # nobody may be waiting for it


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Start a loader that inherits nothing but its end of the control socket."""
    file = theirs.fileno()
    return subprocess.Popen(
        [*COMMAND, str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[file],
        env={**os.environ, **ENVIRONMENT},
        start_new_session=True,
    )


def _reap_orphan(pid: int) -> None:
    """Reap a worker whose loader is gone, if this process became its parent (as process 1)."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)
