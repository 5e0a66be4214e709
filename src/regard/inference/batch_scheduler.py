"""BatchScheduler: continuous batching on a GPU.

Each slot decodes its own request; finished slots are refilled from the queue. One step is captured
as a CUDA graph and replayed; the host reads the counters every few steps. The numbers of a request
do not depend on the other slots, only on how many slots there are. Near-ties (see
search/search_batches.py) found with another number of slots are therefore searched again with
DEFAULT_SLOTS, so that the result depends on the source alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.inference.cuda_graph import GraphedFunction
from regard.inference.device_beams import DeviceBeams, DeviceGreedy, DeviceState
from regard.inference.fast_transformer import FastTransformer
from regard.inference.static_decoder import StaticDecoder
from regard.kernels.decoding.buffers import DecodingKernels
from regard.search.beam import Beam
from regard.search.greedy import Greedy
from regard.search.hypothesis import SearchResult

SLOTS = (1, 8, 64, 512)
DEFAULT_SLOTS = 64
POLL_STEPS = 4  # steps between two reads of the counters; each read forces a device synchronisation


class Request(NamedTuple):
    """A source (END included) with its number, and the length limits of its output."""

    number: int
    ids: Sequence[int]
    min_length: int
    max_length: int

    @property
    def capacity(self) -> int:
        """The source capacity it needs; few distinct values, so that few graphs are captured."""
        return power_of_two(len(self.ids), 16)


def power_of_two(size: int, least: int) -> int:
    """The next power of two, at least `least`."""
    return max(least, 1 << (size - 1).bit_length())


class PrefillQueue:
    """Waiting requests, longest first, so that no long request runs alone at the end. Sources of
    one capacity are encoded together, before there are slots for all of them."""

    def __init__(self, decoder: StaticDecoder, waiting: Sequence[Request]) -> None:
        self.decoder, self.memory = decoder, decoder.memory
        self.ready: list[Request] = []
        order = sorted(waiting, key=lambda one: (len(one.ids), one.max_length), reverse=True)
        self.batches = self._batches(order)

    def take(
        self, count: int
    ) -> tuple[list[Request], Float[Tensor, "layer source 2 kv_head time dim"]]:
        """At most `count` requests with their encoded sources; none if the queue is empty."""
        if not self.ready and (batch := next(self.batches, None)):
            self.ready = batch
            self.memory = self.decoder.encode([one.ids for one in batch], batch[0].capacity)
        taken, self.ready = self.ready[:count], self.ready[count:]
        memory, self.memory = self.memory[:, : len(taken)], self.memory[:, len(taken) :]
        return taken, memory

    def _batches(self, waiting: Sequence[Request]) -> Iterator[list[Request]]:
        for capacity, group in groupby(waiting, lambda one: one.capacity):
            requests, size = list(group), self.decoder.encoder_batch(capacity)
            yield from (requests[i : i + size] for i in range(0, len(requests), size))


class BatchScheduler:
    """A fixed number of slots, and a captured step that runs until all requests have finished."""

    def __init__(
        self,
        search: Greedy | Beam,
        model: FastTransformer,
        slots: int,
        *,
        capacity: int,
        memory: int,
        kernels: DecodingKernels | None = None,
    ) -> None:
        beams = search.size if isinstance(search, Beam) else 1
        self.decoder = StaticDecoder(
            model, slots, beams, capacity=capacity, memory=memory, kernels=kernels
        )
        self.state: DeviceState = DeviceGreedy(self.decoder, search.template)
        if isinstance(search, Beam):
            self.state = DeviceBeams(self.decoder, search)
        self.step = GraphedFunction(self._step, self.decoder.device)  # no slot is active yet

    def fits(self, capacity: int, memory: int) -> bool:
        """Whether outputs and sources of these capacities fit."""
        return capacity <= self.decoder.capacity and memory <= self.decoder.memory_capacity

    def run(self, waiting: Sequence[Request]) -> dict[int, SearchResult]:
        """The result of each request, by its number."""
        queue = PrefillQueue(self.decoder, waiting)
        slots: list[Request | None] = [None] * self.decoder.slots
        times = np.zeros(len(slots), np.int64)
        left, results = len(waiting), dict[int, SearchResult]()
        while left:
            self._refill(slots, times, queue)
            for _ in range(_steps_to_poll(slots, times)):
                self.step()
            counters = self.decoder.counts[:2].cpu().numpy()
            times = counters[0].astype(np.int64)
            finished = [
                slot for slot, one in enumerate(slots) if one is not None and not counters[1, slot]
            ]
            if finished:
                places = torch.tensor(finished, device=self.decoder.device)
                found = self.state.results(places, times[finished])
                for slot, result in zip(finished, found, strict=True):
                    request = slots[slot]
                    assert request is not None
                    results[request.number] = result
                    slots[slot] = None
                left -= len(finished)
        return results

    def _refill(
        self, slots: list[Request | None], times: Int[np.ndarray, " slot"], queue: PrefillQueue
    ) -> None:
        """Assign waiting requests to free slots."""
        free = [slot for slot, one in enumerate(slots) if one is None]
        while free:
            taken, memory = queue.take(len(free))
            if not taken:
                break
            chosen, free = free[: len(taken)], free[len(taken) :]
            rows = [
                [slot, 0, 1, one.max_length, one.min_length, len(one.ids)]
                for slot, one in zip(chosen, taken, strict=True)
            ]
            counts = torch.tensor(rows).to(self.decoder.device)
            self.decoder.fill(counts[:, 0], memory, counts[:, 1:].t().int())
            self.state.open(counts[:, 0])
            for slot, one in zip(chosen, taken, strict=True):
                slots[slot], times[slot] = one, 0

    def _step(self) -> None:
        self.state.choose(self.decoder.step(self.state.tokens, self.state.ancestors))


def _steps_to_poll(slots: Sequence[Request | None], times: Int[np.ndarray, " slot"]) -> int:
    """How many steps to run before reading the counters: few, and none after all have finished."""
    active = [
        (one.min_length - time, one.max_length - time)
        for one, time in zip(slots, times.tolist(), strict=True)
        if one
    ]
    soonest, latest = min(least for least, _ in active), max(most for _, most in active)
    return min(max(POLL_STEPS, soonest + 1), latest + 1)
