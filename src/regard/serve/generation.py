"""Generation: one loaded version of a model, with its loader process and its workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from regard.serve.frames import Message
from regard.serve.loader_process import LoaderLost, LoaderProcess
from regard.serve.request_queue import QueuedRequest, TextBatch
from regard.serve.service_errors import LoadFailed
from regard.serve.service_types import ModelInfo, ModelSpec, ServiceEvents
from regard.serve.worker_connection import WorkerConnection

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between starts that fail
START_SECONDS = 30.0  # a worker that needs longer to start is killed
LOADS = 4  # attempts to load a model whose loader dies


class GenerationOwner(Protocol):
    """Receives the events of a generation."""

    events: ServiceEvents

    def worker_idle(self) -> None:
        """A worker can take a batch."""

    def worker_frame(
        self, generation: Generation, worker: WorkerConnection, frame: Message
    ) -> None:
        """A message of a worker."""

    def batch_lost(self, batch: TextBatch, *, began: bool) -> None:
        """The worker of a batch died; `began` if it had begun with the batch."""

    def loader_lost(self, generation: Generation) -> None:
        """No worker can be replaced any more."""


class Generation:
    """A loaded model. Workers that die are replaced; after `retire`, those that are busy finish."""

    def __init__(self, owner: GenerationOwner, spec: ModelSpec, size: int) -> None:
        self._owner, self._spec, self._size = owner, spec, size
        self._loader: LoaderProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self.info: ModelInfo | None = None
        self.workers: set[WorkerConnection] = set()
        self.idle: list[WorkerConnection] = []
        self.retired = False
        self.stopped = asyncio.Event()

    async def start(self, device: str) -> None:
        """Load the model and start all workers; returns when each can answer."""
        try:
            facts = await self._load(device)
            if not facts.pop("forks"):
                self._size = 1
            self.info = ModelInfo(name=self._spec.name, loaded=time.time(), **facts)
            await asyncio.gather(*(self._add_worker() for _ in range(self._size)))
            if len(self.workers) < self._size:
                raise LoadFailed(f"the workers of model {self._spec.name!r} do not start")
        except BaseException:
            self.retire()
            raise

    def retire(self) -> None:
        """Stop idle workers now, busy ones when they are done, and then the loader."""
        self.retired = True
        for worker in self.idle:
            worker.close()
        self.idle.clear()
        self._stop_if_empty()

    def release(self, worker: WorkerConnection) -> None:
        """A worker has finished its batch."""
        if self.retired:
            worker.close()
        else:
            self.idle.append(worker)

    def cancel_stream(self, request: QueuedRequest) -> None:
        """Stop the stream of a request, if a worker runs it."""
        for worker in self.workers:
            if worker.batch is not None and worker.batch.stream is request:
                worker.cancel_stream(worker.batch)

    @property
    def loader_pid(self) -> int | None:
        """The process id of the loader."""
        return None if self._loader is None else self._loader.pid

    def worker_frame(self, worker: WorkerConnection, frame: Message) -> None:
        """Pass on a message."""
        self._owner.worker_frame(self, worker, frame)

    def worker_lost(self, worker: WorkerConnection, *, read_all: bool) -> None:
        """Replace a worker that died, and report its batch."""
        if worker not in self.workers:  # it never became ready
            return
        self.workers.discard(worker)
        if worker in self.idle:
            self.idle.remove(worker)
        if not worker.closing:
            self._spawn(self._report_death(worker.pid))
            self._failures = 0 if worker.batches else self._failures + 1
            if not self.retired:
                self._spawn(self._add_worker())
        if worker.batch is not None:
            self._owner.batch_lost(worker.batch, began=read_all)
        self._stop_if_empty()

    async def _load(self, device: str) -> dict[str, Any]:
        """Start a loader and wait for the model. One that dies is started again, a few times."""
        for attempt in range(LOADS):
            await asyncio.sleep(_pause(attempt))
            try:
                self._loader = LoaderProcess(self._spec, device, self._loader_lost)
                return await self._loader.load()
            except LoaderLost:
                continue
            except OSError as error:
                raise LoadFailed(f"cannot start a process: {error.strerror}") from None
        raise LoadFailed(
            f"the loader of model {self._spec.name!r} died {LOADS} times; is there enough memory?"
        )

    def _loader_lost(self) -> None:
        if self.info is not None and not self.retired:
            self._owner.loader_lost(self)

    async def _add_worker(self) -> None:
        """Start a worker; after failures, more and more slowly."""
        while not self.retired:
            if self._failures:
                await asyncio.sleep(_pause(self._failures))
            assert self._loader is not None
            try:
                connection, pid = await self._loader.fork()
                worker = await WorkerConnection.open(self, connection, pid, self._loader.has_ended)
            except LoaderLost:
                return  # the owner starts a new generation
            except OSError:  # too many open files, for example
                self._failures += 1
                continue
            try:
                await asyncio.wait_for(worker.ready, START_SECONDS)
            except (ConnectionResetError, TimeoutError):
                worker.kill()
                self._failures += 1
                await self._report_death(pid)
                continue
            self.workers.add(worker)
            self._owner.events.worker_started(self._spec.name, pid)
            self.release(worker)
            self._owner.worker_idle()
            return

    async def _report_death(self, pid: int) -> None:
        assert self._loader is not None
        status = await self._loader.exit_status(pid)
        self._owner.events.worker_died(self._spec.name, pid, status)

    def _stop_if_empty(self) -> None:
        if self.retired and not self.workers and not self.stopped.is_set():
            self._spawn(self._stop_loader())

    async def _stop_loader(self) -> None:
        if self._loader is not None:
            await self._loader.stop()
        self.stopped.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _pause(failures: int) -> float:
    """Seconds before the next start after so many failures in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1)) if failures else 0.0
