"""RequestQueue: the texts that wait for a model, and the batches that are formed from them.

The longest-waiting request comes first. Its batch takes texts of requests with the same options, up
to a budget; the rest of a request stays in the queue for the next worker.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

TEXT_COST = 2  # of a text besides its characters: special tokens

_ids = count(1)


class Pending(NamedTuple):
    """A range of a request's texts that waits; `attempts` workers died while they ran it."""

    start: int
    stop: int
    attempts: int = 0


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """The texts of one request. Requests with the same `key` may share a batch.

    `options` is their JSON; `weight` the work of a character compared with the default options.
    """

    texts: Sequence[str]
    key: Hashable
    options: str
    future: asyncio.Future[list[bytes]]
    arrived: float
    deadline: float
    weight: float = 1.0
    alignment: bool = False
    timer: asyncio.TimerHandle | None = None  # of the deadline
    pieces: asyncio.Queue[str | None] | None = None  # of a stream; None ends it
    streamed: int = 0  # characters of the stream that its client has,
    repeated: int = 0  # and those of them that a second worker has not repeated yet
    version: int = 0  # counts restarts; answers of an earlier version are ignored
    generation: Any = None  # the loaded model that runs it
    missing: int = 0
    results: list[bytes] = field(default_factory=list)
    pending: deque[Pending] = field(default_factory=deque)
    costs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        weight = self.weight
        self.costs = [weight * (len(text) + TEXT_COST) for text in self.texts]
        self.reset()

    def reset(self) -> None:
        """All texts wait, and none is answered."""
        self.missing = len(self.texts)
        self.results = [b""] * len(self.texts)
        self.pending = deque([Pending(0, len(self.texts))])

    @property
    def done(self) -> bool:
        """Whether the request was answered, rejected or cancelled."""
        return self.future.done()


class Part(NamedTuple):
    """The texts of a request in a batch."""

    request: QueuedRequest
    start: int
    stop: int
    attempts: int
    version: int


@dataclass(eq=False, slots=True)
class TextBatch:
    """Texts that one worker runs together."""

    parts: list[Part]
    cost: float
    id: int = field(default_factory=lambda: next(_ids) & 0xFFFF_FFFF)
    sent: float = 0.0

    @property
    def texts(self) -> int:
        """The number of texts."""
        return sum(part.stop - part.start for part in self.parts)

    @property
    def deadline(self) -> float:
        """When none of its requests can be answered in time any more."""
        return max(part.request.deadline for part in self.parts)

    @property
    def stream(self) -> QueuedRequest | None:
        """The request, if it is a stream."""
        first = self.parts[0].request
        return None if first.pieces is None else first

    def body(self) -> bytes:
        """The request to a worker, as JSON."""
        first = self.parts[0].request
        if first.pieces is not None:
            return f'{{"options":{first.options},"text":{json.dumps(first.texts[0])}}}'.encode()
        texts = [text for part in self.parts for text in part.request.texts[part.start : part.stop]]
        alignment = json.dumps(first.alignment)
        return (
            f'{{"options":{first.options},"alignment":{alignment},"texts":{json.dumps(texts)}}}'
        ).encode()


class RequestQueue:
    """Waiting requests, by arrival and by key. `texts` and `cost` are sums over waiting texts."""

    def __init__(self) -> None:
        self.texts, self.cost = 0, 0.0
        self._waiting: OrderedDict[QueuedRequest, None] = OrderedDict()
        self._groups: dict[Hashable, OrderedDict[QueuedRequest, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def oldest(self) -> QueuedRequest:
        """The request that has waited longest."""
        return next(iter(self._waiting))

    def add(self, request: QueuedRequest, *, front: bool = False) -> None:
        """Add a request with its pending texts; at the front if it has waited before."""
        self._count(request, 1)
        self._waiting[request] = None
        group = self._groups.setdefault(request.key, OrderedDict())
        group[request] = None
        if front:
            self._waiting.move_to_end(request, last=False)
            group.move_to_end(request, last=False)

    def remove(self, request: QueuedRequest) -> None:
        """Remove a request, if it waits."""
        if request in self._waiting:
            self._count(request, -1)
            self._forget(request)

    def put_back(self, part: Part, attempts: int) -> None:
        """Let the texts of a lost batch wait again, before all others."""
        request = part.request
        self.remove(request)
        request.pending.appendleft(Pending(part.start, part.stop, attempts))
        self.add(request, front=True)

    def take(self, budget: float, generation: Any) -> TextBatch:
        """The next batch. It has at least one text, and the texts that a worker died with run
        alone. A request that another loaded model has begun starts again."""
        first = self.oldest
        alone = first.pending[0].attempts > 0
        parts: list[Part] = []
        cost = 0.0
        for request in list(self._groups[first.key]):
            self._count(request, -1)
            if request.generation is not generation:
                if request.generation is not None:
                    request.reset()
                    request.version += 1
                request.generation = generation
            while request.pending and cost < budget:
                start, stop, attempts = request.pending[0]
                if attempts and not alone:
                    break
                end, cost = _fit(request.costs, start, stop, cost, budget)
                parts.append(Part(request, start, end, attempts, request.version))
                request.pending.popleft()
                if end < stop:
                    request.pending.appendleft(Pending(end, stop, attempts))
                if alone:
                    break
            self._count(request, 1)
            if not request.pending:
                self._forget(request)
            if alone or cost >= budget:
                break
        return TextBatch(parts, cost)

    def _count(self, request: QueuedRequest, sign: int) -> None:
        for start, stop, _ in request.pending:
            self.texts += sign * (stop - start)
            self.cost += sign * sum(request.costs[start:stop])

    def _forget(self, request: QueuedRequest) -> None:
        del self._waiting[request]
        group = self._groups[request.key]
        del group[request]
        if not group:
            del self._groups[request.key]


def _fit(
    costs: Sequence[float], start: int, stop: int, cost: float, budget: float
) -> tuple[int, float]:
    """How many texts fit into the budget, at least one, and the cost with them."""
    at = start
    while at < stop and (at == start or cost < budget):
        cost += costs[at]
        at += 1
    return at, cost
