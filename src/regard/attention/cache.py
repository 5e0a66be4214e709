"""Cache: the keys and values a decoder has seen, so that each step computes one position only."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.padded import Padded, Sequences, pad
from regard.errors import RegardError, ShapeError


class _Store:
    """Room for keys and values (batch, group, room, dim). `turn` counts appends: only the latest cache may write."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values, self.turn = keys, values, 0


class Cache:
    """Keys and values so far, row by row. Handed over, never changed: `append` and `select` give a new one.

    Rows may hold different lengths. Room doubles when it runs out, up to `limit` (or what uneven rows
    need: the longest row and the most that any brings). Caches share their
    room: appending writes behind what is there, and appending twice to one cache copies, so no cache ever changes.
    """

    def __init__(self, *, limit: int | None = None) -> None:
        self.limit = limit
        self.longest = 0
        self.lengths: Int[Tensor, " batch"] | None = None  # None: every row holds `longest`
        self._store: _Store | None = None
        self._turn = 0

    def append(self, keys: Sequences, values: Sequences) -> Cache:
        """This cache with more positions at the end of each row (as many as the row brings)."""
        new, new_values = pad(keys), pad(values)
        if new.tensor.shape[:3] != new_values.tensor.shape[:3]:
            shapes = tuple(new.tensor.shape[:3]), tuple(new_values.tensor.shape[:3])
            raise ShapeError(f"each key needs one value; got (rows, groups, positions) {shapes[0]} and {shapes[1]}")
        if torch.is_grad_enabled() and (new.tensor.requires_grad or new_values.tensor.requires_grad):
            raise RegardError("a cache keeps no gradients; run the steps under torch.no_grad()")
        if self._store is not None and len(new.tensor) != len(self._store.keys):
            raise ShapeError(f"this cache holds {len(self._store.keys)} rows; got keys for {len(new.tensor)}")
        if self._store is not None:
            for held, more in ((self._store.keys, new.tensor), (self._store.values, new_values.tensor)):
                kinds = [(one.shape[1], one.shape[3], one.dtype) for one in (held, more)]
                if kinds[0] != kinds[1]:
                    raise ShapeError(f"this cache holds (groups, dim, dtype) {kinds[0]}; got {kinds[1]}")
        count = new.tensor.shape[2]
        even = self.lengths is None and new.lengths is None
        before = self.lengths if self.lengths is not None else self.longest
        added = new.lengths if new.lengths is not None else count
        lengths = None if even else torch.as_tensor(before + added, device=new.tensor.device).expand(len(new.tensor))
        longest = self.longest + count if lengths is None else int(lengths.max())
        if self.limit is not None and longest > self.limit:
            raise RegardError(f"this cache is limited to {self.limit} positions; {longest} are asked for")
        grown = Cache(limit=self.limit)
        # Padding of an uneven append lands behind the row's end, so there must be room for it too.
        grown._store = self._room(new.tensor, new_values.tensor, self.longest + count)
        grown._turn = grown._store.turn
        for room, fresh in ((grown._store.keys, new.tensor), (grown._store.values, new_values.tensor)):
            if self.lengths is None:
                room[:, :, self.longest : self.longest + count] = fresh
            else:
                place = (self.lengths[:, None] + torch.arange(count, device=fresh.device))[:, None, :, None]
                room.scatter_(2, place.expand_as(fresh), fresh)
        grown.longest, grown.lengths = longest, lengths
        return grown

    def select(self, rows: Int[Tensor, " chosen"]) -> Cache:
        """The chosen rows, in that order, repeats allowed: beams reorder, finished rows leave."""
        chosen = Cache(limit=self.limit)
        chosen.longest = self.longest
        if self._store is not None:  # with its room, so that the next append need not copy again
            store = self._store
            chosen._store = _Store(store.keys.index_select(0, rows), store.values.index_select(0, rows))
        if self.lengths is not None:
            chosen.lengths = self.lengths[rows]
            chosen.longest = int(chosen.lengths.max()) if len(rows) else 0
        return chosen

    @property
    def offset(self) -> int | Int[Tensor, " batch"]:
        """Where the next query of each row stands."""
        return self.longest if self.lengths is None else self.lengths

    @property
    def keys(self) -> Padded:
        """The keys so far."""
        return Padded(self._filled.keys[:, :, : self.longest], self.lengths)

    @property
    def values(self) -> Padded:
        """The values so far."""
        return Padded(self._filled.values[:, :, : self.longest], self.lengths)

    @property
    def rows(self) -> int:
        """How many rows it holds; an empty cache has none yet."""
        return 0 if self._store is None else len(self._store.keys)

    @property
    def room(self) -> int:
        """Positions there is memory for."""
        return 0 if self._store is None else self._store.keys.shape[2]

    @property
    def _filled(self) -> _Store:
        if self._store is None:
            raise RegardError("this cache is empty; append keys and values before attending to it")
        return self._store

    def _room(self, keys: Tensor, values: Tensor, need: int) -> _Store:
        """A store with room behind what is held: the present one if nobody wrote there yet, or a larger copy."""
        old = self._store
        if old is not None and old.turn == self._turn and need <= self.room:
            old.turn += 1
            return old
        size = max(need, min(2 * need, self.limit or 2 * need))
        held = (None, None) if old is None else (old.keys, old.values)
        return _Store(*(self._grown(fresh, known, size) for fresh, known in zip((keys, values), held, strict=True)))

    def _grown(self, fresh: Tensor, held: Tensor | None, size: int) -> Tensor:
        store = fresh.new_zeros(*fresh.shape[:2], size, fresh.shape[3])
        if held is not None:
            store[:, :, : self.longest] = held[:, :, : self.longest]
        return store
