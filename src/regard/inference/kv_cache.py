"""Held: the keys and values of all layers in one tensor, so that beams reorder in one operation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.inference.folded_cross_attention import Folded
from regard.models.contract import State

# Roles: keys of the first layer, its values, keys of the second … Rows come first: so all cores choose among them.
Held = Float[Tensor, "row role group room dim"]

LARGE = 4 << 20  # bytes from which it matters where memory comes from


class Store:
    """Memory for rooms: what one leaves serves the next. A system has to find and clear all that it hands out, and for
    many beams that took longer than their attention."""

    def __init__(self) -> None:
        self.left: list[Tensor] = []

    def take(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """So much of it, with anything inside, and nobody else's."""
        count = math.prod(shape)
        while self.left and count * like.element_size() >= LARGE:
            flat = self.left.pop()
            if flat.numel() >= count:  # one that is too small is let go: most searches only grow
                return flat[:count].view(shape)
        return like.new_empty(shape)

    def give(self, held: Tensor) -> None:
        """Back, the whole of which this is a part."""
        if held.device.type == "cpu" and held.nbytes >= LARGE:  # GPUs keep their memory themselves
            self.left.append(held.new_empty(0).set_(held.untyped_storage()))


class Room:
    """Where keys and values are written as they come. `filled` tells how far; who finds more than its own copies."""

    def __init__(self, held: Held, filled: int, store: Store | None = None) -> None:
        self.held, self.filled, self.store = held, filled, store

    def __del__(self) -> None:
        if self.store is not None:
            self.store.give(self.held)

    def another(self, rows: int, filled: int) -> Room:
        """An empty one for so many rows, and longer where this is full."""
        _, *parts, length, dim = self.held.shape
        longer = length if filled < length else filled + max(8, filled // 2)
        store = self.store or Store()
        return Room(store.take((rows, *parts, longer, dim), self.held), filled, store)

    @cached_property
    def roles(self) -> tuple[Float[Tensor, "row group room dim"], ...]:
        """Keys and values of each layer."""
        return self.held.unbind(1)


@dataclass(frozen=True, eq=False)
class HeldState(State):
    """The keys and values of `time` positions so far; those of the sources, which `share` rows look at together; and
    which of these are real (None: all). Every row stands at the same position. One source alone may be folded."""

    room: Room
    time: int
    memory: Room
    seen: Float[Tensor, "source 1 1 time"] | None
    folded: list[Folded] | None = None
    share: int = 1

    def select(self, rows: Int[Tensor, " chosen"]) -> HeldState:
        """The chosen rows, each with its own source."""
        return replace(self._of(rows if self.share == 1 else rows // self.share), room=self._past(rows), share=1)

    def branch(self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None) -> HeldState:
        """The chosen rows; the memory is touched only where sources leave."""
        kept = self if sources is None else self._of(sources)
        return replace(kept, room=self._past(rows), share=rows.size(0) // max(1, kept.memory.held.size(0)))

    def grown(self) -> HeldState:
        """The same with room for one more position."""
        room, time = self.room, self.time
        if room.filled == time and time < room.held.shape[3]:
            room.filled += 1
        else:
            room = self.room.another(self.room.held.size(0), time)
            room.held.narrow(3, 0, time).copy_(self.room.held.narrow(3, 0, time))
            room.filled += 1
        return HeldState(room, time + 1, self.memory, self.seen, self.folded, self.share)

    def _past(self, rows: Int[Tensor, " chosen"]) -> Room:
        held, room = self.room.held, self.room.another(rows.size(0), self.time)
        torch.index_select(held, 0, rows, out=room.held.narrow(3, 0, held.size(3)))
        return room

    def _of(self, sources: Int[Tensor, " kept"]) -> HeldState:
        seen = None if self.seen is None else self.seen.index_select(0, sources)
        return replace(self, memory=Room(self.memory.held.index_select(0, sources), 0), seen=seen, folded=None)
