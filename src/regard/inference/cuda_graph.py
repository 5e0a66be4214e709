"""Repeated: work that a GPU does again and again without being told how."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """What a GPU is told inside is recorded in the graph, and not done.

    Other threads may go on: one of them fetches batches. Nothing is collected meanwhile, for a forgotten graph that
    is destroyed while another is recorded spoils that one (pytorch/pytorch#161037).
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    finally:
        if collecting:
            gc.enable()


class Repeated(Generic[T]):
    """A function of tensors that never move. On a GPU it is captured as a graph, and what it returns is written anew by
    each call; elsewhere it is simply called.

    It runs once before it is captured, so that all it needs is there: what it does then must not matter. After that it
    is forgotten, for most often it belongs to who keeps this, and the two would keep each other: its tensors are its
    owner's to keep."""

    def __init__(self, act: Callable[[], T], device: torch.device) -> None:
        self.act: Callable[[], T] | None = act
        if device.type == "cuda":
            stream, here = torch.cuda.Stream(device), torch.cuda.current_stream(device)
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                act()
            here.wait_stream(stream)
            self.graph, self.act = torch.cuda.CUDAGraph(), None
            with recording(self.graph):
                self.made = act()

    def __call__(self) -> T:
        if self.act is not None:
            return self.act()
        self.graph.replay()
        return self.made
