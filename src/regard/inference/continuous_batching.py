"""Flight: many sources searched at once on a GPU, each at its own place; who is done makes room for who waits.

A step is captured once as a CUDA graph and repeated; the host looks at it every few steps. The numbers of a source do
not depend on who flies with it, only on how many seats the flight has. A close call (see settled.py) of any other
flight is therefore decided in one of USUAL seats: the answer depends on the source and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.inference.cuda_graph import Repeated
from regard.inference.device_beams import BeamLedger, GreedyLedger
from regard.inference.fast_transformer import Swift
from regard.inference.static_decoder import Steady
from regard.search.beam import Beam
from regard.search.greedy import Greedy
from regard.search.hypothesis import Found

SEATS = (1, 8, 64, 512)
USUAL = 64
LOOK = 4  # steps between two looks at who is done


class Passenger(NamedTuple):
    """A source (its end included) that waits under a number, and the least and most tokens that its answer may have."""

    number: int
    ids: Sequence[int]
    least: int
    most: int

    @property
    def room(self) -> int:
        """How much room its source needs: few sizes, so that few shapes are met."""
        return rounded(len(self.ids), 16)


def rounded(size: int, least: int) -> int:
    """The next power of two."""
    return max(least, 1 << (size - 1).bit_length())


class Lounge:
    """Those who wait, the longest first: who comes last should not fly alone for long. Sources of one room are read
    together, before there is a seat for all of them."""

    def __init__(self, steady: Steady, waiting: Sequence[Passenger]) -> None:
        self.steady, self.some, self.read = steady, list[Passenger](), steady.memory
        self.groups = self._groups(sorted(waiting, key=lambda one: (len(one.ids), one.most), reverse=True))

    def board(self, seats: int) -> tuple[list[Passenger], Float[Tensor, "layer source 2 group time dim"]]:
        """At most so many, and what was read of them; none if nobody waits."""
        if not self.some and (group := next(self.groups, None)):
            self.some, self.read = group, self.steady.read([one.ids for one in group], group[0].room)
        some, self.some = self.some[:seats], self.some[seats:]
        read, self.read = self.read[:, : len(some)], self.read[:, len(some) :]
        return some, read

    def _groups(self, waiting: Sequence[Passenger]) -> Iterator[list[Passenger]]:
        for room, group in groupby(waiting, lambda one: one.room):
            those, size = list(group), self.steady.batch(room)
            yield from (those[start : start + size] for start in range(0, len(those), size))


class Flight:
    """Seats for so many sources, and a step that is repeated until all have arrived."""

    def __init__(
        self, search: Greedy | Beam, model: Swift, seats: int, *, room: int, memory: int, kernels: Any = None
    ) -> None:
        beams = search.size if isinstance(search, Beam) else 1
        self.steady = Steady(model, seats, beams, room=room, memory=memory, kernels=kernels)
        self.ledger = BeamLedger(self.steady, search) if isinstance(search, Beam) else GreedyLedger(self.steady)
        self.step = Repeated(self._step, self.steady.device)  # no seat is taken yet, so nothing happens

    def fits(self, room: int, memory: int) -> bool:
        """Whether answers and sources of such rooms find place."""
        return room <= self.steady.room and memory <= self.steady.memory_room

    def fly(self, waiting: Sequence[Passenger]) -> dict[int, Found]:
        """What is found for each, by number."""
        lounge = Lounge(self.steady, waiting)
        seats: list[Passenger | None] = [None] * self.steady.slots
        times = np.zeros(len(seats), np.int64)
        left, found = len(waiting), dict[int, Found]()
        while left:
            self._seat(seats, times, lounge)
            for _ in range(_steps(seats, times)):
                self.step()
            looked = self.steady.counts[:2].cpu().numpy()
            times = looked[0].astype(np.int64)
            over = [slot for slot, one in enumerate(seats) if one is not None and not looked[1, slot]]
            if over:
                answers = self.ledger.found(self._places(over), times[over])
                found |= {seats[slot].number: some for slot, some in zip(over, answers, strict=True)}  # type: ignore[union-attr]
                left -= len(over)
            for slot in over:
                seats[slot] = None
        return found

    def _seat(self, seats: list[Passenger | None], times: Int[np.ndarray, " slot"], lounge: Lounge) -> None:
        """Free seats are taken, as long as somebody waits."""
        free = [slot for slot, one in enumerate(seats) if one is None]
        while free:
            some, read = lounge.board(len(free))
            if not some:
                break
            slots, free = free[: len(some)], free[len(some) :]
            rows = [[slot, 0, 1, one.most, one.least, len(one.ids)] for slot, one in zip(slots, some, strict=True)]
            told = torch.tensor(rows).to(self.steady.device)
            self.steady.seat(told[:, 0], read, told[:, 1:].t().int())
            self.ledger.open(told[:, 0])
            for slot, one in zip(slots, some, strict=True):
                seats[slot], times[slot] = one, 0

    def _step(self) -> None:
        self.ledger.choose(self.steady.step(self.ledger.tokens, self.ledger.ancestors))

    def _places(self, slots: Sequence[int]) -> Tensor:
        return torch.tensor(slots, device=self.steady.device)


def _steps(seats: Sequence[Passenger | None], times: Int[np.ndarray, " slot"]) -> int:
    """How many steps to take before the next look: a few, but none in vain."""
    going = [(one.least - time, one.most - time) for one, time in zip(seats, times.tolist(), strict=True) if one]
    soonest, latest = min(least for least, _ in going), max(most for _, most in going)
    return min(max(LOOK, soonest + 1), latest + 1)
