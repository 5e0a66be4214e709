"""KV cache: the keys and values of all layers in one tensor, so that beams reorder in one
operation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.inference.packed_layer import FoldedLayer
from regard.models.contract import State

# Axis 1 holds keys of layer 0, values of layer 0, keys of layer 1 … Rows come first, so that all
# cores share the work of selecting among them.
CacheTensor = Float[Tensor, "row layer_part kv_head capacity dim"]

LARGE = 4 << 20  # bytes from which reusing memory pays


class BufferPool:
    """Reuses the memory of dropped caches. With many beams, the system's allocation and zeroing of
    fresh memory took longer than their attention."""

    def __init__(self) -> None:
        self.free: list[Tensor] = []

    def take(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """An uninitialised tensor of this shape."""
        count = math.prod(shape)
        while self.free and count * like.element_size() >= LARGE:
            flat = self.free.pop()
            if flat.numel() >= count:  # smaller buffers are released: most searches only grow
                return flat[:count].view(shape)
        return like.new_empty(shape)

    def give(self, tensor: Tensor) -> None:
        """Return the whole storage behind `tensor`."""
        if tensor.device.type == "cpu" and tensor.nbytes >= LARGE:  # CUDA caches its own memory
            self.free.append(tensor.new_empty(0).set_(tensor.untyped_storage()))


class KVCache:
    """Keys and values, written in place as positions arrive. `filled` counts the positions written;
    a state that finds more than its own positions copies first."""

    def __init__(self, tensor: CacheTensor, filled: int, pool: BufferPool | None = None) -> None:
        self.tensor, self.filled, self.pool = tensor, filled, pool

    def __del__(self) -> None:
        if self.pool is not None:
            self.pool.give(self.tensor)

    def like(self, rows: int, filled: int) -> KVCache:
        """An empty cache for this many rows, with more capacity where this one is full."""
        _, *parts, capacity, dim = self.tensor.shape
        larger = capacity if filled < capacity else filled + max(8, filled // 2)
        pool = self.pool or BufferPool()
        return KVCache(pool.take((rows, *parts, larger, dim), self.tensor), filled, pool)

    @cached_property
    def layers(self) -> tuple[Float[Tensor, "row kv_head capacity dim"], ...]:
        """Keys and values of each layer, alternating."""
        return self.tensor.unbind(1)


@dataclass(frozen=True, eq=False)
class CachedState(State):
    """The KV cache of `time` positions, and that of the sources, which `share` rows share.

    `padding` is the additive mask of the sources and `lengths` their lengths (None: no padding).
    All rows are at the same position. A single source may have folded cross-attention.
    """

    past: KVCache
    time: int
    memory: KVCache
    padding: Float[Tensor, "source 1 1 time"] | None
    lengths: Int[Tensor, " source"] | None
    folded: list[FoldedLayer] | None = None
    share: int = 1

    def select(self, rows: Int[Tensor, " chosen"]) -> CachedState:
        """The chosen rows, each with its own source."""
        sources = rows if self.share == 1 else rows // self.share
        return replace(self._sources(sources), past=self._past(rows), share=1)

    def branch(
        self, rows: Int[Tensor, " chosen"], sources: Int[Tensor, " kept"] | None = None
    ) -> CachedState:
        """The chosen rows; the memory is copied only where sources leave."""
        kept = self if sources is None else self._sources(sources)
        share = rows.size(0) // max(1, kept.memory.tensor.size(0))
        return replace(kept, past=self._past(rows), share=share)

    def grown(self) -> CachedState:
        """The same state with capacity for one more position."""
        past, time = self.past, self.time
        if past.filled == time and time < past.tensor.shape[3]:
            past.filled += 1
        else:
            past = self.past.like(self.past.tensor.size(0), time)
            past.tensor.narrow(3, 0, time).copy_(self.past.tensor.narrow(3, 0, time))
            past.filled += 1
        return CachedState(
            past, time + 1, self.memory, self.padding, self.lengths, self.folded, self.share
        )

    def _past(self, rows: Int[Tensor, " chosen"]) -> KVCache:
        tensor, past = self.past.tensor, self.past.like(rows.size(0), self.time)
        torch.index_select(tensor, 0, rows, out=past.tensor.narrow(3, 0, tensor.size(3)))
        return past

    def _sources(self, sources: Int[Tensor, " kept"]) -> CachedState:
        padding = None if self.padding is None else self.padding.index_select(0, sources)
        lengths = None if self.lengths is None else self.lengths.index_select(0, sources)
        memory = KVCache(self.memory.tensor.index_select(0, sources), 0)
        return replace(self, memory=memory, padding=padding, lengths=lengths, folded=None)
