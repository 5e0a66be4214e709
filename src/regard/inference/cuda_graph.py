"""CUDA graphs: capture a function once, then replay it without launch overhead."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


@contextmanager
def capture(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """Capture the GPU work of the block into the graph, without running it.

    Other threads may continue (one of them prefetches batches). Garbage collection is off:
    destroying an old graph during a capture invalidates the capture (pytorch/pytorch#161037).
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    finally:
        if collecting:
            gc.enable()


class GraphedFunction(Generic[T]):
    """A function of tensors at fixed addresses. On a GPU it is captured as a CUDA graph, and each
    call overwrites its results; elsewhere it is called.

    It runs once before the capture as a warm-up, whose effects must not matter. Afterwards the
    function is dropped: usually its owner holds this object, and the two would keep each other
    alive.
    """

    def __init__(self, function: Callable[[], T], device: torch.device) -> None:
        self.function: Callable[[], T] | None = function
        if device.type == "cuda":
            stream, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                function()
            current.wait_stream(stream)
            self.graph, self.function = torch.cuda.CUDAGraph(), None
            with capture(self.graph):
                self.result = function()

    def __call__(self) -> T:
        if self.function is not None:
            return self.function()
        self.graph.replay()
        return self.result
