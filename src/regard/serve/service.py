"""Service: answers requests for several models with worker processes.

>>> service = Service([ModelSpec("spelling", folder)], workers=2)
>>> await service.start()
>>> await service.generate("spelling", ["attention"], {"beam": 4})
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from regard.errors import RegardError, suggestion
from regard.serve.cpu_count import available_cpus
from regard.serve.model_scheduler import ModelScheduler
from regard.serve.request_options import OptionChecker, is_unicode
from regard.serve.request_queue import QueuedRequest
from regard.serve.service_errors import InvalidRequest, ServiceError, TooLarge, UnknownModel
from regard.serve.service_types import (
    ModelInfo,
    ModelSpec,
    NoEvents,
    ServiceEvents,
    ServiceLimits,
)

__all__ = ["ModelInfo", "ModelSpec", "NoEvents", "Service", "ServiceEvents", "ServiceLimits"]


class Service:
    """Models by name, each with a queue and a pool of workers. All methods belong to the event
    loop that called `start`."""

    def __init__(
        self,
        models: Sequence[ModelSpec],
        *,
        workers: int | None = None,
        limits: ServiceLimits | None = None,
        events: ServiceEvents | None = None,
        device: str = "auto",
    ) -> None:
        names = [spec.name for spec in models]
        if not names or len(set(names)) < len(names):
            raise RegardError(f"models need different names; got {', '.join(names) or 'none'}")
        if workers is not None and workers < 1:
            raise RegardError(f"workers must be at least 1; got {workers}")
        self.limits = limits or ServiceLimits()
        self.events: ServiceEvents = events or NoEvents()
        self._specs = list(models)
        self._workers, self._device = workers or available_cpus(), device
        self._check_options = OptionChecker(self.limits.beam)
        self._schedulers: dict[str, ModelScheduler] = {}

    @property
    def ready(self) -> bool:
        """Whether every model can answer and new requests are accepted."""
        schedulers = self._schedulers.values()
        return bool(schedulers) and all(scheduler.ready for scheduler in schedulers)

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """The loaded models by name."""
        return {name: scheduler.info for name, scheduler in self._schedulers.items()}

    @property
    def waiting(self) -> Mapping[str, int]:
        """The texts in the queue of each model."""
        return {name: scheduler.waiting for name, scheduler in self._schedulers.items()}

    @property
    def worker_pids(self) -> Mapping[str, list[int]]:
        """The process ids of the workers of each model."""
        return {name: scheduler.worker_pids for name, scheduler in self._schedulers.items()}

    @property
    def loader_pids(self) -> Mapping[str, int | None]:
        """The process id of the loader of each model."""
        return {name: scheduler.loader_pid for name, scheduler in self._schedulers.items()}

    async def start(self) -> None:
        """Start all workers; returns when every model can answer."""
        schedulers = {
            spec.name: ModelScheduler(
                spec,
                workers=self._workers,
                limits=self.limits,
                events=self.events,
                device=self._device,
            )
            for spec in self._specs
        }
        loads = (scheduler.load() for scheduler in schedulers.values())
        results = await asyncio.gather(*loads, return_exceptions=True)
        if errors := [error for error in results if isinstance(error, BaseException)]:
            for scheduler in schedulers.values():
                await scheduler.drain()
            raise errors[0]
        self._schedulers = schedulers

    async def generate(
        self,
        model: str,
        texts: Sequence[str],
        options: Mapping[str, Any],
        *,
        alignment: bool = False,
        deadline: float | None = None,
    ) -> list[list[dict[str, Any]]]:
        """The answers to each text, best first, as JSON objects: text, tokens, logps, logp, score,
        confidence, unknown and, on request, alignment."""
        found = await self.generate_json(
            model, texts, options, alignment=alignment, deadline=deadline
        )
        return [json.loads(answers) for answers in found]

    async def generate_json(
        self,
        model: str,
        texts: Sequence[str],
        options: Mapping[str, Any],
        *,
        alignment: bool = False,
        deadline: float | None = None,
    ) -> list[bytes]:
        """The same, each list of answers as JSON in UTF-8: fast, because nothing is decoded."""
        scheduler = self._scheduler(model)
        request = self._request(scheduler, texts, options, alignment, deadline)
        if not texts:
            return []
        scheduler.submit(request)
        return await request.future

    def stream(
        self,
        model: str,
        text: str,
        options: Mapping[str, Any],
        *,
        deadline: float | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """{"piece": str} for each new part of the text, then {"answer": …} as in `generate`.

        A request that cannot be accepted raises at once. Closing the generator cancels it.
        """
        scheduler = self._scheduler(model)
        request = self._request(scheduler, [text], options, False, deadline, stream=True)
        scheduler.submit(request)
        return _stream(request)

    async def reload(self, model: str) -> None:
        """Load the bundle again. If it is broken, raises `LoadFailed` and keeps the old one."""
        await self._scheduler(model).load()

    async def drain(self) -> None:
        """Refuse new requests, finish the accepted ones and stop all workers."""
        schedulers = self._schedulers.values()
        await asyncio.gather(*(scheduler.drain() for scheduler in schedulers))

    def _scheduler(self, model: str) -> ModelScheduler:
        scheduler = self._schedulers.get(model) if isinstance(model, str) else None
        if scheduler is None:
            self.events.rejected("", UnknownModel.code)
            fix = suggestion(str(model)[:80], self._schedulers)
            raise UnknownModel(f"unknown model {str(model)[:80]!r}; {fix}")
        return scheduler

    def _request(
        self,
        scheduler: ModelScheduler,
        texts: Sequence[str],
        options: Mapping[str, Any],
        alignment: bool,
        deadline: float | None,
        *,
        stream: bool = False,
    ) -> QueuedRequest:
        """A request whose texts and options are valid; otherwise raises."""
        try:
            self._check_texts(texts)
            seconds = self._check_deadline(deadline)
            checked = self._check_options(options)
        except ServiceError as error:
            self.events.rejected(scheduler.spec.name, error.code)
            raise
        loop = asyncio.get_running_loop()
        now = loop.time()
        return QueuedRequest(
            texts,
            key=object() if stream else (checked.json, alignment),
            options=checked.json,
            future=loop.create_future(),
            arrived=now,
            deadline=now + seconds,
            weight=checked.weight,
            alignment=alignment,
            pieces=asyncio.Queue() if stream else None,
        )

    def _check_texts(self, texts: Sequence[str]) -> None:
        limits = self.limits
        most = min(limits.texts_per_request, limits.queue_texts)
        if len(texts) > most:
            raise TooLarge(
                f"the request has {len(texts):,} texts, beyond the limit of {most:,} "
                "(texts_per_request); send several requests"
            )
        for index, text in enumerate(texts):
            if not isinstance(text, str) or not (text.isascii() or is_unicode(text)):
                raise InvalidRequest(f"text {index} is not a string of Unicode characters")
            if len(text) > limits.characters_per_text:
                raise TooLarge(
                    f"text {index} has {len(text):,} characters, beyond the limit of "
                    f"{limits.characters_per_text:,} (characters_per_text); shorten it"
                )

    def _check_deadline(self, deadline: float | None) -> float:
        if deadline is None:
            return self.limits.deadline
        is_number = isinstance(deadline, int | float) and not isinstance(deadline, bool)
        if not is_number or not deadline > 0:
            raise InvalidRequest(f"deadline must be a number of seconds above 0; got {deadline!r}")
        return min(float(deadline), self.limits.deadline)


async def _stream(request: QueuedRequest) -> AsyncGenerator[dict[str, Any], None]:
    assert request.pieces is not None
    try:
        while (piece := await request.pieces.get()) is not None:
            yield {"piece": piece}
        (answers,) = request.future.result()
        yield {"answer": json.loads(answers)[0]}
    finally:
        request.future.cancel()
