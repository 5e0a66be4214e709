"""Continuous batching: which searches it can run, how many slots they get, and how near-ties are
settled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, proxy

import torch

from regard.inference import static_decoder
from regard.inference.batch_scheduler import (
    DEFAULT_SLOTS,
    SLOTS,
    BatchScheduler,
    Request,
    power_of_two,
)
from regard.inference.fast_transformer import FastTransformer
from regard.models import Model
from regard.search.beam import Beam
from regard.search.constraints import max_length, min_length
from regard.search.greedy import Greedy
from regard.search.hypothesis import SearchResult
from regard.search.search_batches import Search

MAX_BEAM = 16
MAX_TOKENS = 2_048  # of a source or an output
KEPT_SCHEDULERS = 4  # per model
MEMORY_SHARE = 0.25  # of the free GPU memory, for the KV caches
_INSTALLED = find_spec("triton") is not None

_LOCK = Lock()  # a scheduler serves one search at a time
_SCHEDULERS: WeakKeyDictionary[Model, dict[tuple[object, int], BatchScheduler]] = (
    WeakKeyDictionary()
)


def cannot(search: Search, model: Model, device: torch.device | str) -> str | None:
    """Why this search cannot run on the device alone: it supports greedy and beam search with
    length constraints on a FastTransformer."""
    if torch.device(device).type != "cuda" or not _INSTALLED:
        return "it needs a GPU and Triton"
    if not isinstance(model, FastTransformer):
        return f"it runs a FastTransformer, not a {type(model).__name__}"
    if torch.cuda.get_device_capability(model.tables[0].device) < (8, 0):
        return "the GPU's matrix units do not support float32 (compute capability below 8.0)"
    if type(search) is not Greedy and type(search) is not Beam:
        return f"it runs greedy and beam search, not {type(search).__name__}"
    if isinstance(search, Beam) and (search.size > MAX_BEAM or search.required is not None):
        return f"it supports beams up to {MAX_BEAM} without required words"
    if len(search.template.start) > 1 or search.template.banned:
        return "it supports one start token and no banned tokens"
    for constraint in search.constraints:
        if not isinstance(constraint, min_length | max_length):
            return "it supports length constraints only"
    return static_decoder.cannot(model, beams=_beams(search))


def run(
    search: Any, model: Any, sources: Sequence[Sequence[int]], limits: Sequence[int]
) -> Mapping[int, SearchResult]:
    """The result of each source (END included) by its index, without those that do not fit."""
    waiting = requests(search, sources, limits)
    with _LOCK, torch.cuda.device(model.tables[0].device):
        return _run(search, model, waiting)


def requests(
    search: Greedy | Beam, sources: Sequence[Sequence[int]], limits: Sequence[int]
) -> list[Request]:
    """The requests that fit.

    Excludes those that are too long, and those whose constraints contradict.
    """
    rules = search.constraints
    least = max((rule.count for rule in rules if isinstance(rule, min_length)), default=0)
    most = min((rule.count for rule in rules if isinstance(rule, max_length)), default=MAX_TOKENS)
    every = [
        Request(index, ids, least, min(most, limits[index])) for index, ids in enumerate(sources)
    ]
    return [
        one for one in every if len(one.ids) <= MAX_TOKENS and least <= one.max_length < MAX_TOKENS
    ]


def _run(
    search: Greedy | Beam, model: FastTransformer, waiting: Sequence[Request]
) -> Mapping[int, SearchResult]:
    if not waiting:
        return {}
    scheduler = _scheduler(search, model, waiting, _slots(len(waiting), model.tables[0].dtype))
    if scheduler is None:
        return {}
    results = scheduler.run(waiting)
    ties = [one for one in waiting if results[one.number].is_close]
    if scheduler.decoder.slots == DEFAULT_SLOTS or not ties:
        return results
    default = _scheduler(search, model, ties, DEFAULT_SLOTS)
    usable = default is not None and default.decoder.slots == DEFAULT_SLOTS
    again = default.run(ties) if default is not None and usable else {}
    decided = {index: one for index, one in results.items() if not one.is_close}
    return {**decided, **again}


def _beams(search: Greedy | Beam) -> int:
    return search.size if isinstance(search, Beam) else 1


def _slots(count: int, dtype: torch.dtype) -> int:
    """How many slots pay for `count` requests: many slots pay only if they are filled. In half
    precision near-ties are frequent, and a step of DEFAULT_SLOTS takes no longer than one of 8
    slots: 2 to 8 requests go there at once instead of being searched twice."""
    fitting = SLOTS[-1]
    for slots in SLOTS:
        if count <= (slots if slots < DEFAULT_SLOTS else 4 * slots):
            fitting = slots
            break
    return fitting if dtype == torch.float32 or count == 1 else max(fitting, DEFAULT_SLOTS)


def _scheduler(
    search: Greedy | Beam, model: FastTransformer, waiting: Sequence[Request], wanted: int
) -> BatchScheduler | None:
    """A scheduler with at most `wanted` slots, as memory allows; None if nothing fits."""
    capacity = power_of_two(max(one.max_length for one in waiting) + 1, 64)
    memory = max(one.capacity for one in waiting)
    reason = static_decoder.cannot(model, beams=_beams(search), capacity=capacity, memory=memory)
    if reason is not None:
        return None
    cached = _SCHEDULERS.setdefault(model, {})
    kind: tuple[object, ...] = (search.template,)
    if isinstance(search, Beam):
        kind = (*kind, search.size, search.n_best, search.length_penalty)
    for slots in [slots for slots in SLOTS[::-1] if slots <= wanted]:
        scheduler = cached.pop((kind, slots), None)
        if scheduler is None or not scheduler.fits(capacity, memory):
            if scheduler is not None:
                capacity = max(capacity, scheduler.decoder.capacity)
                memory = max(memory, scheduler.decoder.memory_capacity)
            del scheduler
            if not _fits_memory(search, model, slots, capacity, memory):
                continue
            weak: Any = proxy(model)  # the scheduler must not keep its model alive
            scheduler = BatchScheduler(search, weak, slots, capacity=capacity, memory=memory)
        cached[kind, slots] = scheduler  # the latest comes last
        for old in list(cached)[:-KEPT_SCHEDULERS]:
            del cached[old]
        return scheduler
    return None


def _fits_memory(
    search: Greedy | Beam, model: FastTransformer, slots: int, capacity: int, memory: int
) -> bool:
    """Whether the KV caches fit into the allowed share of the free memory."""
    table, beams = model.tables[1], _beams(search)
    each = 2 * len(model.decoder) * model.kv_heads * model.dim * table.element_size()
    free, _ = torch.cuda.mem_get_info(table.device)
    free += torch.cuda.memory_reserved(table.device) - torch.cuda.memory_allocated(table.device)
    return slots * each * (beams * capacity + memory) <= MEMORY_SHARE * free
