"""Clock: how long a call takes on a device, as a median."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

Timer = Callable[[Callable[[], object]], float]
REPEATS = 9
ENOUGH = 0.15  # seconds; on a CPU a call that is slower is timed once
TOGETHER = 5  # calls at a time, so that a GPU need not wait for the host


def timer(device: str) -> Timer:
    """The clock of a device."""
    return on_gpu if device == "cuda" else on_cpu


def on_cpu(run: Callable[[], object]) -> float:
    """Median seconds of a call, after one that warms up."""
    run()
    times: list[float] = []
    while not times or (sum(times) < ENOUGH and len(times) < REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def on_gpu(run: Callable[[], object]) -> float:
    """Median seconds on the device: recorded once and replayed, or called as it is where it cannot be recorded."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    replay = _recorded(run)
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(TOGETHER):
            replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / TOGETHER / 1e3)
    return statistics.median(times)


def _recorded(run: Callable[[], object]) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
            run()
    except RuntimeError:  # it looks at a number on the way: then the host is part of its time
        torch.cuda.synchronize()
        return run
    return graph.replay


def matmul_rate(clock: Timer, device: str, dtype: torch.dtype) -> float:
    """Operations a second in a large matrix product."""
    size = 8192 if device == "cuda" else 1536
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    return 2 * size**3 / clock(lambda: matrix @ matrix)


def copy_rate(clock: Timer, device: str) -> float:
    """Bytes a second in a large copy, read and written."""
    here = torch.empty(1 << (30 if device == "cuda" else 26), dtype=torch.uint8, device=device)
    there = torch.empty_like(here)
    return 2 * here.numel() / clock(lambda: there.copy_(here))
