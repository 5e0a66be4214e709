"""CUDA graphs: unused graphs are freed at once, and freeing one does not break another capture."""

import gc
import weakref

import pytest
import torch

from regard.inference.cuda_graph import GraphedFunction, capture

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
DEVICE = torch.device("cuda")


class Counter:
    """Owns a graph of its own method, as encoders and schedulers do."""

    def __init__(self) -> None:
        self.total = torch.zeros((), device=DEVICE)
        self.more = GraphedFunction(self._more, DEVICE)

    def _more(self) -> torch.Tensor:
        return self.total.add_(1)


def test_replays_repeat_the_captured_work():
    counter = Counter()
    counter.total.zero_()
    for _ in range(3):
        counter.more()
    assert counter.total.item() == 3


def test_owners_are_freed_without_the_collector():
    gc.disable()
    try:
        counter = Counter()
        gone = weakref.ref(counter)
        del counter
        assert gone() is None
    finally:
        gc.enable()


def test_a_freed_graph_does_not_break_a_capture():
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        torch.zeros(1, device=DEVICE)
    cycle = [graph]
    cycle.append(cycle)  # only the garbage collector frees it
    del graph, cycle
    other, x = torch.cuda.CUDAGraph(), torch.zeros((), device=DEVICE)
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        with capture(other):
            some = [[i] for i in range(1_000)]  # would trigger the garbage collector
            x.add_(len(some))
    finally:
        gc.set_threshold(*thresholds)
    other.replay()
    assert x.item() == 1_000
