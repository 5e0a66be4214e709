"""Held: the keys and values of all layers in one tensor, so that beams reorder in one operation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor

from regard.models.contract import State
from regard.models.folded import Folded

# Roles: keys of the first layer, its values, keys of the second … Rows come first: so all cores choose among them.
Held = Float[Tensor, "row role group room dim"]


class Room:
    """Where keys and values are written as they come. `filled` tells how far; who finds more than its own copies."""

    def __init__(self, held: Held, filled: int) -> None:
        self.held, self.filled = held, filled

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
            *before, _, dim = room.held.shape
            held = room.held.new_empty(*before, time + max(8, time // 2), dim)
            held.narrow(3, 0, time).copy_(room.held.narrow(3, 0, time))
            room = Room(held, time + 1)
        return HeldState(room, time + 1, self.memory, self.seen, self.folded, self.share)

    def _past(self, rows: Int[Tensor, " chosen"]) -> Room:
        return Room(self.room.held.index_select(0, rows), self.time)

    def _of(self, sources: Int[Tensor, " kept"]) -> HeldState:
        seen = None if self.seen is None else self.seen.index_select(0, sources)
        return replace(self, memory=Room(self.memory.held.index_select(0, sources), 0), seen=seen, folded=None)
