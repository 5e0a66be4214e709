"""ModelScheduler: the queue of one model, and the workers that its batches go to.

A text goes to an idle worker at once. While others are busy, a batch may fill for a few
milliseconds. The texts of a request are spread over idle workers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from regard.serve.frames import Kind, Message, Status, unpack_results
from regard.serve.generation import Generation
from regard.serve.request_queue import Part, QueuedRequest, RequestQueue, TextBatch
from regard.serve.service_errors import (
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    LoadFailed,
    QueueFull,
    ServiceError,
    WorkerLost,
)
from regard.serve.service_types import ModelInfo, ModelSpec, ServiceEvents, ServiceLimits
from regard.serve.throughput import Throughput
from regard.serve.worker_connection import WorkerConnection

HANG_SECONDS = 1.0  # a worker that is silent for longer after all its deadlines is killed
GPU_BUDGET = 16  # a GPU takes so many times the tokens of a CPU at once
RELOAD_PAUSE, LONGEST_RELOAD_PAUSE = 0.5, 30.0  # seconds between attempts after a loader died


class ModelScheduler:
    """Accepts requests for a model and answers each once, or rejects it."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        workers: int,
        limits: ServiceLimits,
        events: ServiceEvents,
        device: str = "auto",
    ) -> None:
        self.spec, self.events, self._device = spec, events, device
        self._size, self._limits = workers, limits
        self._loop = asyncio.get_running_loop()
        self._queue = RequestQueue()
        self._active: set[QueuedRequest] = set()
        self._finished = asyncio.Event()  # set when no request is active
        self._generation: Generation | None = None
        self._loading = asyncio.Lock()
        self._retired: set[Generation] = set()
        self._recovery: asyncio.Task[None] | None = None
        self._wakeup: asyncio.Handle | None = None
        self._draining = False
        self._throughput = Throughput()

    @property
    def info(self) -> ModelInfo:
        """The loaded model."""
        assert self._generation is not None
        assert self._generation.info is not None
        return self._generation.info

    @property
    def ready(self) -> bool:
        """Whether a worker is there and new requests are accepted."""
        return bool(self._generation and self._generation.workers and not self._draining)

    @property
    def waiting(self) -> int:
        """Texts in the queue."""
        return self._queue.texts

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of all workers."""
        return [worker.pid for worker in self._generation.workers] if self._generation else []

    @property
    def loader_pid(self) -> int | None:
        """The process id of the loader."""
        return self._generation.loader_pid if self._generation else None

    async def load(self) -> None:
        """Load the bundle, and use it once all its workers can answer. If it cannot be loaded,
        raises `LoadFailed` and changes nothing."""
        async with self._loading:
            generation = Generation(self, self.spec, self._size)
            try:
                await generation.start("cpu" if self.spec.int8 else self._device)
            except LoadFailed as error:
                self._retired.add(generation)
                raise LoadFailed(f"cannot serve model {self.spec.name!r}: {error}") from None
            old, self._generation = self._generation, generation
            self._retired = {one for one in self._retired if not one.stopped.is_set()}
            if old is not None:
                self._retired.add(old)
                old.retire()
            self._dispatch()

    def submit(self, request: QueuedRequest) -> None:
        """Queue a request; raises if it cannot be accepted."""
        if error := self._refusal(request):
            self.events.rejected(self.spec.name, error.code)
            raise error
        self._active.add(request)
        self._finished.clear()
        request.timer = self._loop.call_at(request.deadline, self._expire, request)
        request.future.add_done_callback(lambda _: self._forget(request))
        self._queue.add(request)
        self.events.queued(self.spec.name, len(request.texts))
        self._dispatch_soon()

    async def drain(self) -> None:
        """Refuse new requests, answer the accepted ones and stop all processes."""
        self._draining = True
        if self._active:
            await self._finished.wait()
        if self._recovery is not None:
            self._recovery.cancel()
        async with self._loading:
            if self._generation is not None:
                self._generation.retire()
                self._retired.add(self._generation)
        for generation in self._retired:
            await generation.stopped.wait()

    # ---- what workers report -----------------------------------------------------------------

    def worker_idle(self) -> None:
        """Send it the next batch."""
        self._dispatch()

    def worker_frame(
        self, generation: Generation, worker: WorkerConnection, frame: Message
    ) -> None:
        """Take the answers of a batch, or a piece of a stream."""
        batch = worker.batch
        if batch is None or frame.id != batch.id:
            return
        if frame.kind == Kind.PIECE:
            self._take_piece(batch, frame.body.decode())
            return
        worker.finish()
        statuses, bodies, tokens = unpack_results(frame.body)
        seconds = self._loop.time() - batch.sent
        self._throughput.add(batch, tokens, seconds)
        self.events.finished(self.spec.name, batch.texts, tokens, seconds)
        generation.release(worker)
        self._dispatch()  # first the worker, then the clients
        at = 0
        for part in batch.parts:
            end = at + part.stop - part.start
            self._take_results(part, statuses[at:end], bodies[at:end])
            at = end

    def batch_lost(self, batch: TextBatch, *, began: bool) -> None:
        """Run the texts of a lost batch again; once, if the worker had begun with it."""
        for part in batch.parts:
            request = part.request
            if request.done or part.version != request.version:
                continue
            replaced = request.streamed and request.generation is not self._generation
            attempts = part.attempts + began
            if attempts > 1 or replaced:
                message = "the workers that ran this request died; do not send it again"
                self._reject(request, WorkerLost(message))
            else:
                request.repeated = request.streamed
                self._queue.put_back(part, attempts)
        self._dispatch()

    def loader_lost(self, generation: Generation) -> None:
        """Load the bundle again: without a loader, no worker can be replaced."""
        if generation is self._generation and not self._draining:
            self._recovery = self._loop.create_task(self._recover())

    def _refusal(self, request: QueuedRequest) -> ServiceError | None:
        """Why a request cannot be accepted now."""
        if self._draining:
            return Draining("the service is stopping; send the request again", retry_after=1.0)
        waiting = self._queue.texts
        wait = self._throughput.seconds(self._queue.cost, self._size)
        over = waiting + len(request.texts) > self._limits.queue_texts
        if over or wait > request.deadline - request.arrived:
            message = (
                f"{waiting:,} texts wait for model {self.spec.name!r}, too many for "
                f"{len(request.texts):,} more; send the request again later"
            )
            return QueueFull(message, retry_after=float(max(1, math.ceil(wait))))
        return None

    # ---- batches -----------------------------------------------------------------------------

    def _dispatch_soon(self) -> None:
        """Dispatch after the requests that have already arrived were read, too."""
        if self._wakeup is None:
            self._wakeup = self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Send batches to idle workers."""
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        generation = self._generation
        while self._queue and generation is not None and generation.idle:
            now = self._loop.time()
            budget = self._budget(generation)
            wait = self._queue.oldest.arrived + self._limits.batch_wait - now
            busy = len(generation.idle) < len(generation.workers)
            if busy and wait > 0 and self._queue.cost < budget:
                self._wakeup = self._loop.call_later(wait, self._dispatch)
                return
            share = self._queue.cost / len(generation.idle)
            batch = self._queue.take(min(budget, share), generation)
            generation.idle.pop().run(batch, now, HANG_SECONDS)
            waited = now - min(part.request.arrived for part in batch.parts)
            tokens = round(batch.cost * self._throughput.tokens_per_cost)
            self.events.started(self.spec.name, batch.texts, tokens, waited)

    def _budget(self, generation: Generation) -> float:
        """The cost that a batch may have."""
        assert generation.info is not None
        factor = 1 if generation.info.device == "cpu" else GPU_BUDGET
        return factor * self._limits.batch_tokens / self._throughput.tokens_per_cost

    # ---- answers -----------------------------------------------------------------------------

    def _take_results(self, part: Part, statuses: bytes, bodies: Sequence[bytes]) -> None:
        request = part.request
        if request.done or part.version != request.version:
            return
        if any(statuses):
            self._reject(request, _failure(request, part.start, statuses, bodies))
            return
        request.results[part.start : part.stop] = bodies
        request.missing -= part.stop - part.start
        if not request.missing:
            request.future.set_result(request.results)

    def _take_piece(self, batch: TextBatch, piece: str) -> None:
        """Pass on a piece; after a retry, without what the client has already."""
        stream = batch.stream
        if stream is None or stream.pieces is None:
            return
        again = min(len(piece), stream.repeated)
        stream.repeated -= again
        if piece[again:]:
            stream.streamed += len(piece) - again
            stream.pieces.put_nowait(piece[again:])

    def _expire(self, request: QueuedRequest) -> None:
        if not request.done:
            seconds = request.deadline - request.arrived
            message = f"no answer within the deadline of {seconds:g} s; send fewer texts at once"
            self._reject(request, DeadlineExceeded(message))

    def _reject(self, request: QueuedRequest, error: ServiceError) -> None:
        self.events.rejected(self.spec.name, error.code)
        request.future.set_exception(error)

    def _forget(self, request: QueuedRequest) -> None:
        """Free what a request that is done holds."""
        self._queue.remove(request)
        if request.timer is not None:
            request.timer.cancel()
        if request.pieces is not None:
            request.pieces.put_nowait(None)
            if request.generation is not None:
                request.generation.cancel_stream(request)
        if request.future.cancelled():
            self.events.rejected(self.spec.name, "cancelled")
        self._active.discard(request)
        if not self._active:
            self._finished.set()

    async def _recover(self) -> None:
        pause = 0.0
        while not self._draining:
            await asyncio.sleep(pause)
            try:
                await self.load()
                return
            except LoadFailed:
                pause = min(LONGEST_RELOAD_PAUSE, 2 * pause or RELOAD_PAUSE)


def _failure(
    request: QueuedRequest, start: int, statuses: bytes, bodies: Sequence[bytes]
) -> ServiceError:
    """The error of the first text that has no answer."""
    index = next(index for index, status in enumerate(statuses) if status)
    message = bodies[index].decode()
    if len(request.texts) > 1:
        message = f"text {start + index}: {message}"
    return InvalidRequest(message) if statuses[index] == Status.REJECTED else ServiceError(message)
