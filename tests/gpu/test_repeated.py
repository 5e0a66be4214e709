"""Recordings on a GPU: what is forgotten goes at once, and what goes late does not spoil another
recording.
"""

import gc
import weakref

import pytest
import torch

from regard.inference.cuda_graph import GraphedFunction, capture

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
DEVICE = torch.device("cuda")


class Counter:
    """Keeps what repeats its own method, as readers and flights do."""

    def __init__(self) -> None:
        self.total = torch.zeros((), device=DEVICE)
        self.more = GraphedFunction(self._more, DEVICE)

    def _more(self) -> torch.Tensor:
        return self.total.add_(1)


def test_it_counts():
    counter = Counter()
    counter.total.zero_()
    for _ in range(3):
        counter.more()
    assert counter.total.item() == 3


def test_what_is_forgotten_goes_without_the_collector():
    gc.disable()
    try:
        counter = Counter()
        gone = weakref.ref(counter)
        del counter
        assert gone() is None
    finally:
        gc.enable()


def test_forgotten_graphs_do_not_spoil_a_recording():
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        torch.zeros(1, device=DEVICE)
    kept = [graph]
    kept.append(kept)  # only the collector will find it
    del graph, kept
    other, x = torch.cuda.CUDAGraph(), torch.zeros((), device=DEVICE)
    usual = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        with capture(other):
            some = [[i] for i in range(1_000)]  # the collector would come by
            x.add_(len(some))
    finally:
        gc.set_threshold(*usual)
    other.replay()
    assert x.item() == 1_000
