"""CUDA-graph training steps (one graph per batch shape), and the prefetching of their batches.

A GPU finishes the kernels of a small model faster than Python can launch them. A CUDA graph
launches all kernels of a step at once, optimizer included.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.inference.cuda_graph import capture
from regard.text import Batch, Batches, StaticShape, TrainingBatch, pack_batch, unpack_batch
from regard.text.template import DEFAULT_TEMPLATE, Template

SIZES = 32  # different sizes of one side of a batch, up to the tokens of a whole step

PackedBatch = tuple[StaticShape, Tensor]


class StaticBuffers:
    """Device memory for the batches of one shape, and the CUDA graph that reads it."""

    def __init__(self, shape: StaticShape, device: torch.device) -> None:
        self.shape = shape
        self.numbers = torch.zeros(shape.size, dtype=torch.int64, device=device)
        self.share, self.loss = (torch.zeros((), device=device) for _ in range(2))
        self.warm = False
        self.graph: torch.cuda.CUDAGraph | None = None

    @property
    def batch(self) -> TrainingBatch:
        """The batch in the buffers; a new object each time, because it caches values derived from
        its offsets."""
        return unpack_batch(self.numbers, self.shape, self.share)

    def capture(self, update: Callable[[TrainingBatch], Tensor], pool: Any) -> torch.cuda.CUDAGraph:
        """A CUDA graph of the update, which has not run yet."""
        graph = torch.cuda.CUDAGraph()
        with capture(graph, pool):
            self.loss.copy_(update(self.batch))
        return graph


class GraphStep:
    """Training steps replayed from CUDA graphs.

    The first batch of a shape runs eagerly, which also compiles its kernels; the second is
    captured. All graphs share one memory pool, because they run one after another.
    """

    def __init__(
        self,
        update: Callable[[TrainingBatch], Tensor],
        *,
        batch_tokens: int,
        device: torch.device,
        replay: bool = True,
        template: Template = DEFAULT_TEMPLATE,
    ) -> None:
        self.update, self.device, self.replay = update, device, replay
        self.template = template
        self.granularity = max(64, batch_tokens // SIZES // 64 * 64)
        self.buffers: dict[StaticShape, StaticBuffers] = {}
        self._pool: Any = None

    @property
    def graphs(self) -> list[torch.cuda.CUDAGraph]:
        """The graphs captured so far."""
        return [some.graph for some in self.buffers.values() if some.graph is not None]

    def pack(self, batch: Batch) -> PackedBatch | None:
        """A batch padded to its static shape, in pinned memory; None if a sequence is too long."""
        shape = StaticShape.from_batch(batch, self.granularity, self.template)
        if shape is None:
            return None
        pinned = self.device.type == "cuda"
        return shape, pack_batch(batch, shape, pinned=pinned, template=self.template)

    def __call__(self, shape: StaticShape, numbers: Tensor, share: float) -> Tensor:
        """Run one update; returns its loss. `share`: the weight of one target token."""
        if shape not in self.buffers:
            self.buffers[shape] = StaticBuffers(shape, self.device)
        buffers = self.buffers[shape]
        buffers.numbers.copy_(numbers, non_blocking=True)
        buffers.share.fill_(share)
        if not buffers.warm or not self.replay:
            loss = self.update(buffers.batch)
            buffers.warm = True
            return loss
        if buffers.graph is None:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            buffers.graph = buffers.capture(self.update, self._pool)
        buffers.graph.replay()
        return buffers.loss.clone()


class Prefetched(NamedTuple):
    """A batch, its epoch, its step in the epoch, and its packed form if there is one."""

    epoch: int
    epoch_step: int
    batch: Batch
    packed: PackedBatch | None


class Prefetcher:
    """Batches in order. If there is a function to `pack` them, a thread prepares the next batch."""

    def __init__(
        self, batches: Batches, pack: Callable[[Batch], PackedBatch | None] | None
    ) -> None:
        self.batches, self.pack = batches, pack
        self._worker = ThreadPoolExecutor(1) if pack else None
        self._next: tuple[int, int, Future[Prefetched]] | None = None

    def take(self, epoch: int, epoch_step: int, *, last: bool = False) -> Prefetched:
        """The batch of a step, or the first of the next epoch if this one is over."""
        if self._worker is None:
            return self._load(epoch, epoch_step)
        if self._next is not None and self._next[:2] == (epoch, epoch_step):
            taken = self._next[2].result()
        else:
            taken = self._worker.submit(self._load, epoch, epoch_step).result()
        self._next = None
        if not last:
            following = taken.epoch, taken.epoch_step + 1
            self._next = (*following, self._worker.submit(self._load, *following))
        return taken

    def _load(self, epoch: int, epoch_step: int) -> Prefetched:
        epoch, epoch_step, batch = self.batches.next_batch(epoch, epoch_step)
        return Prefetched(epoch, epoch_step, batch, self.pack(batch) if self.pack else None)
