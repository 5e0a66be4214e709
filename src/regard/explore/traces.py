"""Traces: those computed last, kept within bounds. A trace that was dropped is computed again while it is known how."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.errors import suggestion
from regard.explore.models import Models, Offered
from regard.explore.refusals import Refusal, invalid, unknown
from regard.explore.requests import TOKENS, Ask

if TYPE_CHECKING:
    from torch import Tensor

    from regard.pipeline import Pipeline
    from regard.search import Beam, Greedy
    from regard.text.tokenizers import Tokenizer
    from regard.trace import Trace

COUNT, BYTES, REMEMBERED = 32, 512 << 20, 1_024


@dataclass(frozen=True, eq=False)
class Held:
    """A trace with what it was asked for by, the model it ran on, how long it took, and how large it is."""

    ask: Ask
    model: Offered
    trace: Trace
    seconds: float
    bytes: int

    @property
    def id(self) -> str:
        """The hash of what was asked."""
        return self.ask.id

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name."""
        if name not in self.trace.names:
            near = suggestion(name, self.trace.names)
            raise unknown("unknown-tensor", f"this trace has no tensor {name[:80]!r}; {near}")
        return self.trace[name]


class Traces:
    """At most `count` traces of at most `bytes` together, the newest always; and how `remembered` ones were asked."""

    def __init__(self, models: Models, *, count: int = COUNT, bytes: int = BYTES, remembered: int = REMEMBERED) -> None:
        self.models, self.count, self.bytes, self.remembered = models, count, bytes, remembered
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._asks: OrderedDict[str, Ask] = OrderedDict()
        self._lock = threading.Lock()

    def ask(self, ask: Ask) -> Held:
        """The trace that is asked for: the same question gives the same one."""
        id, model = ask.id, self.models[ask.model]
        if (found := self._found(id)) is not None:
            return found
        with model.turn() as pipeline:
            if (found := self._found(id)) is not None:  # another asked the same and was faster
                return found
            held = self._computed(ask, model, pipeline)
        with self._lock:
            self._asks[id] = ask
            self._held[id] = held
            while len(self._held) > 1 and (len(self._held) > self.count or self.size > self.bytes):
                self._held.popitem(last=False)
            while len(self._asks) > self.remembered:
                self._asks.popitem(last=False)
        return held

    def __getitem__(self, id: str) -> Held:
        if (found := self._found(id)) is not None:
            return found
        with self._lock:
            ask = self._asks.get(id)
        if ask is None:
            raise Refusal(410, "trace-dropped", f"trace {id[:80]!r} is no longer here; ask for it again")
        return self.ask(ask)

    @property
    def size(self) -> int:
        """The bytes of all that are held."""
        return sum(held.bytes for held in self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    def _found(self, id: str) -> Held | None:
        with self._lock:
            if id not in self._held:
                return None
            self._held.move_to_end(id)
            return self._held[id]

    def _computed(self, ask: Ask, model: Offered, pipeline: Pipeline) -> Held:
        from regard.trace import record

        bundle = pipeline.bundle
        if not ask.source.strip():
            raise invalid("the source is empty; type a text", "empty")
        check_length(bundle.source, "source", ask.source.strip())
        if ask.target is not None:
            check_length(bundle.target, "target", ask.target)
        start = time.perf_counter()
        search = searching(pipeline, ask.decode.width) if ask.target is None else None
        trace = record(pipeline, ask.source, target=ask.target, search=search, edits=ask.edits, longest=TOKENS)
        seconds = time.perf_counter() - start
        return Held(ask, model, trace, seconds, sum(trace[name].nbytes for name in trace.names))


def searching(pipeline: Pipeline, width: int) -> Greedy | Beam:
    """How the explorer searches: with so many beginnings side by side, for no more than it can show."""
    longest = None if pipeline.most is not None and pipeline.most <= TOKENS else TOKENS
    return pipeline.search(beam=width, max_length=longest)  # type: ignore[return-value]


def check_length(tokenizer: Tokenizer, side: str, text: str) -> None:
    """Raise when a text has more tokens than the page can show."""
    count = len(tokenizer.encode(text))
    if count > TOKENS:
        raise invalid(f"the {side} has {count:,} tokens; the explorer takes {TOKENS} at most: shorten it", "too-long")
