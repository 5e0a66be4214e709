"""Captured: a step recorded once for each shape, then replayed.

A GPU finishes a small model's kernels sooner than Python can name them; a recording (a CUDA graph) names them all at
once, optimizer included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.inference.cuda_graph import capture
from regard.text import Batch, StaticShape, TrainingBatch, pack_batch, unpack_batch

GRAINS = 32  # sizes of a side, up to a whole step's tokens


class Slot:
    """Where the lessons of one shape lie while they are learned, and the recording of that, once there is one."""

    def __init__(self, shape: StaticShape, device: torch.device) -> None:
        self.shape, self.flat = shape, torch.zeros(shape.size, dtype=torch.int64, device=device)
        self.share, self.loss = torch.zeros((), device=device), torch.zeros((), device=device)
        self.seen = False
        self.graph: torch.cuda.CUDAGraph | None = None

    @property
    def lesson(self) -> TrainingBatch:
        """The lesson that lies here now; a new one each time, for what follows from its offsets is kept in it."""
        return unpack_batch(self.flat, self.shape, self.share)

    def record(self, update: Callable[[TrainingBatch], Tensor], pool: Any) -> torch.cuda.CUDAGraph:
        """The update of this slot's lesson, with nothing run yet."""
        graph = torch.cuda.CUDAGraph()
        with capture(graph, pool):
            self.loss.copy_(update(self.lesson))
        return graph


class Captured:
    """Updates by recordings. A shape is learned from as usual the first time it comes, which also compiles its kernels;
    it is recorded the second time. All recordings share one memory, for they run one after another."""

    def __init__(
        self, update: Callable[[TrainingBatch], Tensor], *, batch_tokens: int, device: torch.device, replay: bool = True
    ) -> None:
        self.update, self.device, self.replay = update, device, replay
        self.grain = max(64, batch_tokens // GRAINS // 64 * 64)
        self.slots: dict[StaticShape, Slot] = {}
        self._pool: Any = None

    @property
    def graphs(self) -> list[torch.cuda.CUDAGraph]:
        """The recordings so far."""
        return [slot.graph for slot in self.slots.values() if slot.graph is not None]

    def prepared(self, batch: Batch) -> tuple[StaticShape, Tensor] | None:
        """A batch filled up, in memory that a GPU can fetch by itself; None where a sequence is too long."""
        shape = StaticShape.from_batch(batch, self.grain)
        return None if shape is None else (shape, pack_batch(batch, shape, pinned=self.device.type == "cuda"))

    def __call__(self, shape: StaticShape, numbers: Tensor, share: float) -> Tensor:
        """One update; its loss."""
        if shape not in self.slots:
            self.slots[shape] = Slot(shape, self.device)
        slot = self.slots[shape]
        slot.flat.copy_(numbers, non_blocking=True)
        slot.share.fill_(share)
        if not slot.seen or not self.replay:
            loss = self.update(slot.lesson)
            slot.seen = True
            return loss
        if slot.graph is None:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            slot.graph = slot.record(self.update, self._pool)
        slot.graph.replay()
        return slot.loss.clone()
