"""The traces computed last, within limits of count and memory; dropped ones are recomputed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from regard.decoding_options import SearchOptions
from regard.errors import suggestion
from regard.explore.film_store import ReducedFilm
from regard.explore.messages import MAX_TOKENS, TraceRequest, not_found
from regard.explore.model_store import ModelStore, ServedModel
from regard.web.access import HttpError
from regard.web.allocator import release_free_memory
from regard.web.json_messages import invalid

if TYPE_CHECKING:
    from torch import Tensor

    from regard.pipeline import Pipeline
    from regard.search import Beam, Greedy
    from regard.text.tokenizers import Tokenizer
    from regard.trace import Trace

MAX_TRACES = 128  # more than the frames of a training film; four for each student of a class
MAX_BYTES = 192 << 20  # three texts of 512 tokens; the trace of a sentence has about 1 MB
MAX_REQUESTS = 1_024
RELEASE_BYTES = 32 << 20  # dropped traces after which free memory is returned to the system


@dataclass(frozen=True, eq=False)
class StoredTrace:
    """A trace with its request, its model, the time it took and its size in bytes."""

    request: TraceRequest
    model: ServedModel
    trace: Trace
    seconds: float
    bytes: int

    @property
    def id(self) -> str:
        """The hash of the request."""
        return self.request.id

    def tensor(self, name: str) -> Tensor:
        """The tensor with this name."""
        if name not in self.trace.names:
            near = suggestion(name, self.trace.names)
            raise not_found("unknown-tensor", f"this trace has no tensor {name[:80]!r}; {near}")
        return self.trace[name]


class TraceStore:
    """An LRU cache of traces, at least the newest; remembers the requests of dropped ones."""

    def __init__(
        self,
        models: ModelStore,
        *,
        max_traces: int = MAX_TRACES,
        max_bytes: int = MAX_BYTES,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        self.models = models
        self.max_traces = max_traces
        self.max_bytes = max_bytes
        self.max_requests = max_requests
        self._traces: OrderedDict[str, StoredTrace] = OrderedDict()
        self._requests: OrderedDict[str, TraceRequest] = OrderedDict()
        self._dropped = 0  # bytes since free memory was returned
        self._lock = threading.Lock()

    def compute(self, request: TraceRequest) -> StoredTrace:
        """The trace of a request; an equal request returns the same trace."""
        id, model = request.id, self.models[request.model]
        if (cached := self._cached(id)) is not None:
            return cached
        if request.checkpoint is not None:
            film = model.film
            if isinstance(film, ReducedFilm):
                return self._keep(self._frame(request, model, film))
            model = film.model_at(request.checkpoint)
        with model.exclusive() as pipeline:
            if (cached := self._cached(id)) is not None:  # an equal request was faster
                return cached
            stored = self._record(request, model, pipeline)
        return self._keep(stored)

    def _frame(self, request: TraceRequest, model: ServedModel, film: ReducedFilm) -> StoredTrace:
        """A frame of a reduced film, which has the tokens of the finished model's trace."""
        finished = self.compute(request.model_copy(update={"checkpoint": None})).trace
        trace = film.trace(request, finished)
        return StoredTrace(request, model, trace, 0.0, sum(trace[name].nbytes for name in trace))

    def _keep(self, stored: StoredTrace) -> StoredTrace:
        """Add a trace to the cache, and drop the oldest ones while it is full."""
        id, request = stored.id, stored.request
        with self._lock:
            self._requests[id] = request
            self._traces[id] = stored
            while len(self._traces) > 1 and self._is_full():
                self._dropped += self._traces.popitem(last=False)[1].bytes
            while len(self._requests) > self.max_requests:
                self._requests.popitem(last=False)
            release = self._dropped >= RELEASE_BYTES
            if release:
                self._dropped = 0
        if release:
            release_free_memory()
        return stored

    def __getitem__(self, id: str) -> StoredTrace:
        if (cached := self._cached(id)) is not None:
            return cached
        with self._lock:
            request = self._requests.get(id)
        if request is None:
            message = f"trace {id[:80]!r} has expired; request it again"
            raise HttpError(410, "trace-expired", message)
        return self.compute(request)

    @property
    def bytes(self) -> int:
        """The size of all cached traces."""
        return sum(stored.bytes for stored in self._traces.values())

    def __len__(self) -> int:
        return len(self._traces)

    def _is_full(self) -> bool:
        return len(self._traces) > self.max_traces or self.bytes > self.max_bytes

    def _cached(self, id: str) -> StoredTrace | None:
        with self._lock:
            if id not in self._traces:
                return None
            self._traces.move_to_end(id)
            return self._traces[id]

    def _record(self, request: TraceRequest, model: ServedModel, pipeline: Pipeline) -> StoredTrace:
        from regard.trace import record

        bundle = pipeline.bundle
        if not request.source.strip():
            raise invalid("the source is empty; enter a text", "empty")
        check_length(bundle.source, "source", request.source.strip())
        if request.target is not None:
            check_length(bundle.target, "target", request.target)
        start = time.perf_counter()
        trace = record(
            pipeline,
            request.source,
            target=request.target,
            search=search_for(pipeline, request.options) if request.target is None else None,
            edits=request.edits,
            max_length=MAX_TOKENS,
        )
        seconds = time.perf_counter() - start
        size = sum(trace[name].nbytes for name in trace.names)
        if request.checkpoint is not None:  # the trace keeps the weights of its snapshot
            size += sum(weight.nbytes for weight in pipeline.model.parameters())
        return StoredTrace(request, model, trace, seconds, size)


def check_model(stored: StoredTrace) -> None:
    """Raise if a trace has given numbers only, so that nothing else can be computed."""
    if not stored.trace.has_model:
        message = "this trace has attention and output only; for the rest, open its model"
        raise HttpError(422, "no-model", message)


def search_for(pipeline: Pipeline, options: SearchOptions) -> Greedy | Beam:
    """The search with these options, for outputs that the page can show."""
    if pipeline.max_length is None or pipeline.max_length > MAX_TOKENS:
        given = MAX_TOKENS if options.max_length is None else options.max_length
        options = replace(options, max_length=min(given, MAX_TOKENS))
    return pipeline.search(options)  # type: ignore[return-value]


def check_length(tokenizer: Tokenizer, side: str, text: str) -> None:
    """Raise if a text has more tokens than the page can show."""
    count = len(tokenizer.encode(text))
    if count > MAX_TOKENS:
        limit = f"the explorer shows up to {MAX_TOKENS}"
        raise invalid(f"the {side} has {count:,} tokens; {limit}: shorten it", "too-long")
