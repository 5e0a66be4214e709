"""Dense rows with lengths (Padded), and the keys and values of past positions (Cache)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError, ShapeError
from regard.ragged import Layout, Ragged


@dataclass(frozen=True, eq=False)
class Padded:
    """A dense (batch, head, time, dim) tensor and each row's real length; None: no padding."""

    tensor: Float[Tensor, "batch head time dim"]
    lengths: Int[Tensor, " batch"] | None = None


# Ragged (token, head, dim), padded rows, or dense (batch, head, time, dim).
Sequences = Ragged | Padded | Tensor


def pad(sequences: Sequences) -> Padded:
    """Sequences as dense rows. Free for dense tensors and for ragged batches of equal lengths."""
    if isinstance(sequences, Padded):
        return sequences
    if isinstance(sequences, Tensor):
        return Padded(sequences)
    values, layout = sequences.values, sequences.layout
    size = len(layout) * layout.longest
    table = values if layout.is_uniform else _scatter(values, layout.padded_index, size)
    dense = table.view(len(layout), layout.longest, *values.shape[1:]).transpose(1, 2)
    return Padded(dense, None if layout.is_uniform else layout.lengths)


def unpad(dense: Float[Tensor, "batch head time dim"], layout: Layout) -> Ragged:
    """Dense rows as a ragged batch; the padding is dropped."""
    table = dense.transpose(1, 2).flatten(0, 1)
    return Ragged.from_layout(
        table if layout.is_uniform else _gather(table, layout.padded_index), layout
    )


class _Scatter(torch.autograd.Function):
    """Copy tokens to their slots in a table of zeros.

    Each slot is written once, so the gradient is a plain gather. Autograd's own gradient would add
    into the table, many times slower on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, slots: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(slots)
        return tokens.new_zeros(size, *tokens.shape[1:]).index_copy_(0, slots, tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        return _gather(gradients[0], slots), None, None


class _Gather(torch.autograd.Function):
    """Read tokens from their slots: the inverse of `_Scatter`, and its gradient."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.size = len(table)
        return table.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (slots,) = ctx.saved_tensors
        return _scatter(gradients[0], slots, ctx.size), None


_scatter: Callable[[Tensor, Tensor, int], Tensor] = _Scatter.apply
_gather: Callable[[Tensor, Tensor], Tensor] = _Gather.apply


class _Storage:
    """Memory for keys and values (batch, kv_head, capacity, dim), shared by successive caches.

    `version` counts appends: only the latest cache may write behind its end.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values
        self.version = 0


class Cache:
    """The keys and values so far, one row per sequence. Immutable: `append` returns a new cache.

    Rows may have different lengths. The capacity doubles when it runs out, up to `limit` positions
    (or what uneven rows need: the longest row plus the longest append). Caches share their storage:
    an append writes behind the existing positions, and a second append to one cache copies first,
    so no cache ever changes.
    """

    def __init__(self, *, limit: int | None = None) -> None:
        self.limit = limit
        self.longest = 0
        self.lengths: Int[Tensor, " batch"] | None = None  # None: every row has `longest`
        self._storage: _Storage | None = None
        self._version = 0

    def append(self, keys: Sequences, values: Sequences) -> Cache:
        """This cache with more positions at the end of each row (rows may add different counts)."""
        new, new_values = pad(keys), pad(values)
        self._check(new.tensor, new_values.tensor)
        count = new.tensor.shape[2]
        lengths, longest = self._new_lengths(new)
        if self.limit is not None and longest > self.limit:
            raise RegardError(f"this cache is limited to {self.limit} positions; got {longest}")
        grown = Cache(limit=self.limit)
        # The padding of an uneven append is written behind the row's end, so it needs memory too.
        grown._storage = self._reserve(new.tensor, new_values.tensor, self.longest + count)
        grown._version = grown._storage.version
        pairs = (grown._storage.keys, new.tensor), (grown._storage.values, new_values.tensor)
        for stored, added in pairs:
            if self.lengths is None:
                stored[:, :, self.longest : self.longest + count] = added
            else:
                time = self.lengths[:, None] + torch.arange(count, device=added.device)
                stored.scatter_(2, time[:, None, :, None].expand_as(added), added)
        grown.longest, grown.lengths = longest, lengths
        return grown

    def select(self, rows: Int[Tensor, " chosen"]) -> Cache:
        """The chosen rows in this order, repeats allowed: for beam reordering and finished rows."""
        chosen = Cache(limit=self.limit)
        chosen.longest = self.longest
        if self._storage is not None:  # with its capacity, so that the next append need not copy
            old = self._storage
            chosen._storage = _Storage(
                old.keys.index_select(0, rows), old.values.index_select(0, rows)
            )
        if self.lengths is not None:
            chosen.lengths = self.lengths[rows]
            chosen.longest = int(chosen.lengths.max()) if len(rows) else 0
        return chosen

    @property
    def offset(self) -> int | Int[Tensor, " batch"]:
        """The position of the next query of each row."""
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
        """The number of rows; 0 while the cache is empty."""
        return 0 if self._storage is None else len(self._storage.keys)

    @property
    def capacity(self) -> int:
        """The number of positions that fit into the allocated memory."""
        return 0 if self._storage is None else self._storage.keys.shape[2]

    @property
    def _filled(self) -> _Storage:
        if self._storage is None:
            raise RegardError("this cache is empty; append keys and values before attending to it")
        return self._storage

    def _check(self, keys: Tensor, values: Tensor) -> None:
        """Raise if these keys and values cannot be appended."""
        if keys.shape[:3] != values.shape[:3]:
            raise ShapeError(
                "each key needs one value; got (rows, kv_heads, positions) "
                f"{tuple(keys.shape[:3])} and {tuple(values.shape[:3])}"
            )
        if torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad):
            raise RegardError("a cache stores no gradients; decode under torch.no_grad()")
        if self._storage is None:
            return
        if len(keys) != len(self._storage.keys):
            raise ShapeError(f"this cache has {self.rows} rows; got keys for {len(keys)}")
        for stored, added in ((self._storage.keys, keys), (self._storage.values, values)):
            kinds = [(x.shape[1], x.shape[3], x.dtype) for x in (stored, added)]
            if kinds[0] != kinds[1]:
                raise ShapeError(
                    f"this cache stores (kv_heads, dim, dtype) {kinds[0]}; got {kinds[1]}"
                )

    def _new_lengths(self, new: Padded) -> tuple[Tensor | None, int]:
        """The rows' lengths after an append (None: all equal), and the longest."""
        count = new.tensor.shape[2]
        if self.lengths is None and new.lengths is None:
            return None, self.longest + count
        before = self.lengths if self.lengths is not None else self.longest
        added = new.lengths if new.lengths is not None else count
        total = torch.as_tensor(before + added, device=new.tensor.device)
        lengths = total.expand(len(new.tensor))
        return lengths, int(lengths.max())

    def _reserve(self, keys: Tensor, values: Tensor, need: int) -> _Storage:
        """Storage for `need` positions: the current one if its end is free, else a larger copy."""
        old = self._storage
        if old is not None and old.version == self._version and need <= self.capacity:
            old.version += 1
            return old
        size = max(need, min(2 * need, self.limit or 2 * need))
        return _Storage(
            self._grow(keys, None if old is None else old.keys, size),
            self._grow(values, None if old is None else old.values, size),
        )

    def _grow(self, like: Tensor, old: Tensor | None, size: int) -> Tensor:
        storage = like.new_zeros(*like.shape[:2], size, like.shape[3])
        if old is not None:
            storage[:, :, : self.longest] = old[:, :, : self.longest]
        return storage
