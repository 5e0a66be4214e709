"""Repeated: work that a GPU does again and again without being told how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Repeated(Generic[T]):
    """A function of tensors that never move. On a GPU it is captured as a graph, and what it returns is written anew by
    each call; elsewhere it is simply called.

    It runs once before it is captured, so that all it needs is there: what it does then must not matter."""

    def __init__(self, act: Callable[[], T], device: torch.device) -> None:
        self.act, self.graph = act, None
        if device.type == "cuda":
            stream, here = torch.cuda.Stream(device), torch.cuda.current_stream(device)
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                act()
            here.wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            # Other threads may go on: one of them fetches batches where a model is looked at while it learns.
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.made = act()

    def __call__(self) -> T:
        if self.graph is None:
            return self.act()
        self.graph.replay()
        return self.made
