"""Ahead: the next batch is made ready while a GPU learns from this one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from regard.text import Batch, Batches, StaticShape

Prepared = tuple[StaticShape, Tensor]
Taken = tuple[int, int, Batch, Prepared | None]


class Ahead:
    """Batches in their order. With a way to `prepare` them, the next one is prepared in a thread; without, nothing is
    done before it is asked for."""

    def __init__(self, batches: Batches, prepare: Callable[[Batch], Prepared | None] | None) -> None:
        self.batches, self.prepare = batches, prepare
        self._worker = ThreadPoolExecutor(1) if prepare else None
        self._next: tuple[int, int, Future[Taken]] | None = None

    def take(self, epoch: int, step: int, *, last: bool = False) -> Taken:
        """The batch of a step (or the next epoch's first), where it really stands, and prepared if that is possible."""
        if self._worker is None:
            return self._made(epoch, step)
        if self._next is not None and self._next[:2] == (epoch, step):
            taken = self._next[2].result()
        else:
            taken = self._worker.submit(self._made, epoch, step).result()
        self._next = None
        if not last:
            place = taken[0], taken[1] + 1
            self._next = (*place, self._worker.submit(self._made, *place))
        return taken

    def _made(self, epoch: int, step: int) -> Taken:
        epoch, step, batch = self.batches.next_batch(epoch, step)
        return epoch, step, batch, self.prepare(batch) if self.prepare else None
