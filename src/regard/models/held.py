"""Held: the keys and values of all layers in one tensor, so that beams reorder in one operation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.contract import State

Held = Float[Tensor, "layer row 2 group room dim"]  # keys, then values


class Room:
    """Where keys and values are written as they come. `filled` tells how far; who finds more than its own copies."""

    def __init__(self, held: Held, filled: int) -> None:
        self.held, self.filled = held, filled

    @cached_property
    def layers(self) -> list[Float[Tensor, "row 2 group room dim"]]:
        """Those of each layer."""
        return list(self.held.unbind(0))


@dataclass(frozen=True, eq=False)
class HeldState(State):
    """The keys and values of `time` positions so far; those of the sources, which `share` rows look at together; and
    which of these are real (None: all). Every row stands at the same position."""

    room: Room
    time: int
    memory: Room
    seen: Float[Tensor, "source 1 1 time"] | None
    share: int = 1

    def select(self, rows: Int[Tensor, " chosen"]) -> HeldState:
        """The chosen rows, each with its own source."""
        return replace(self._of(rows if self.share == 1 else rows // self.share), room=self._past(rows), share=1)

    def branch(self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None) -> HeldState:
        """The chosen rows; the memory is touched only where sources leave."""
        kept = self if sources is None else self._of(sources)
        return replace(kept, room=self._past(rows), share=len(rows) // max(1, kept.memory.held.shape[1]))

    def grown(self) -> HeldState:
        """The same with room for one more position."""
        room = self.room
        if room.filled == self.time and self.time < room.held.shape[4]:
            room.filled += 1
        else:
            empty = room.held.new_zeros(*room.held.shape[:4], max(8, self.time // 2), room.held.shape[5])
            room = Room(torch.cat([room.held[:, :, :, :, : self.time], empty], 4), self.time + 1)
        return HeldState(room, self.time + 1, self.memory, self.seen, self.share)

    def _past(self, rows: Int[Tensor, " chosen"]) -> Room:
        return Room(self.room.held.index_select(1, rows), self.time)

    def _of(self, sources: Int[Tensor, " kept"]) -> HeldState:
        seen = None if self.seen is None else self.seen.index_select(0, sources)
        return replace(self, memory=Room(self.memory.held.index_select(1, sources), 0), seen=seen)
