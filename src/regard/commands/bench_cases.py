"""Benchmark cases of `regard bench`: one for each cell of the dispatch table, and their timing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.attention import BACKENDS, SCORES, Attention, Mask, causal, everything
from regard.attention.backends import choose_backend, example_tensor
from regard.attention.backends.dispatch_table import LENGTHS
from regard.errors import BackendError
from regard.positions import BiasPosition, position
from regard.ragged import Ragged

Timer = Callable[[Callable[[], object]], float]
REPEATS = 9
ENOUGH_SECONDS = 0.15  # on a CPU, a slower call is timed once
CALLS = 5  # per measurement on a GPU, to hide launch latency
ROWS = {  # score or bias -> row of the dispatch table; biases by distance alone, and by query
    "plain": "plain",
    "distance": "biased",
    "shaw": "biased",
    "additive": "additive",
}
SIZES = {"cuda": (8, 64, 24_576), "cpu": (4, 32, 768)}  # heads, dim, total tokens
LENGTH_RANGES = {  # shortest and longest sequence
    "cuda": {"short": (5, 60), "middle": (136, 248), "long": (512, 2048)},
    "cpu": {"short": (5, 25), "middle": (136, 248), "long": (256, 384)},
}


@dataclass(frozen=True)
class BenchCase:
    """One attention to measure: its score or bias, and the lengths of its sequences."""

    score: str
    length: str
    rows: str
    lengths: list[int]
    heads: int
    dim: int
    mask: Mask

    def build(self, backend: str) -> Attention:
        """The attention of this case on a backend."""
        kind = "additive" if self.score == "additive" else "scaled-dot"
        score = SCORES[kind](self.heads, self.dim)
        if ROWS[self.score] != "biased":
            return Attention(score, backend=backend)
        sizes = {"width": self.heads * self.dim, "heads": self.heads, "dim": self.dim}
        bias = position(self.score, causal=self.mask == causal, **sizes)
        assert isinstance(bias, BiasPosition)
        return Attention(score, bias=bias, backend=backend)

    def floor(self, *, back: bool, products: float, copies: float, size: int) -> float:
        """The least seconds possible: the larger of the time for arithmetic and for memory.

        Arithmetic: two matrix products forward and five backward over the allowed pairs, at the
        speed of large ones. Memory: four tensors forward and seven more backward.
        """
        pairs = sum(n * (n + 1) / 2 if self.mask == causal else n * n for n in self.lengths)
        values = sum(self.lengths) * self.heads * self.dim
        arithmetic = (14 if back else 4) * pairs * self.heads * self.dim / products
        return max(arithmetic, (11 if back else 4) * values * size / copies)


@dataclass
class BenchResult:
    """Seconds of a case by backend, why other backends cannot run it, and the choice of `auto`."""

    case: BenchCase
    back: bool
    auto: str
    seconds: dict[str, float] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)

    @property
    def fastest(self) -> str:
        """The backend with the least time."""
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def slower(self) -> float:
        """The time of `auto` over that of the fastest backend."""
        if self.auto not in self.seconds:
            return float("inf")
        return self.seconds[self.auto] / self.seconds[self.fastest]


def cases(device: str, mask: Mask = everything) -> Iterator[BenchCase]:
    """Every score and bias at every length, on sequences of equal and of different lengths."""
    heads, dim, tokens = SIZES[device]
    random = torch.Generator().manual_seed(1)
    for score in ROWS:
        for length in LENGTHS:
            least, most = LENGTH_RANGES[device][length]
            count = max(2, 2 * tokens // (least + most))
            drawn = torch.randint(least, most, (count - 1,), generator=random).tolist()
            own_heads = 1 if score == "additive" else heads
            for rows, lengths in (("even", [most] * (tokens // most)), ("uneven", [most, *drawn])):
                yield BenchCase(score, length, rows, lengths, own_heads, dim, mask)


def measure(
    case: BenchCase, device: str, dtype: torch.dtype, *, back: bool, clock: Timer
) -> BenchResult:
    """Time every backend that can run a case: forward alone, or forward and backward."""
    sizes = sum(case.lengths), case.heads, case.dim
    leaves = [torch.randn(sizes, device=device, dtype=dtype, requires_grad=back) for _ in range(3)]
    queries = Ragged(leaves[0], torch.tensor([0, *case.lengths], device=device).cumsum(0))
    sequences = [queries.like(leaf) for leaf in leaves]
    with torch.set_grad_enabled(back):
        uneven, attention = not queries.layout.is_uniform, case.build("auto").to(device, dtype)
        auto = choose_backend(attention, example_tensor(queries), case.mask, uneven=uneven)
        found = BenchResult(case, back, auto)
        for name in BACKENDS:
            attention = case.build(name).to(device, dtype)
            wanted = [*leaves, *attention.parameters()] if back else []
            try:
                found.seconds[name] = clock(_step(attention, sequences, case.mask, wanted))
            except BackendError as error:
                found.cannot[name] = str(error).partition(": ")[2].partition(". Use")[0]
            except torch.OutOfMemoryError:
                found.cannot[name] = "it ran out of memory"
    return found


def _step(
    attention: Attention, sequences: list[Ragged], mask: Mask, wanted: list[Any]
) -> Callable[[], object]:
    """The call to time: forward, and backward if gradients are wanted."""
    gradient = torch.ones_like(sequences[2].values)

    def step() -> object:
        output = attention(*sequences, mask=mask).values
        return torch.autograd.grad(output, wanted, gradient) if wanted else output

    return step


def timer(device: str) -> Timer:
    """The function that times a call on a device."""
    return time_on_gpu if device == "cuda" else time_on_cpu


def time_on_cpu(run: Callable[[], object]) -> float:
    """Median seconds of a call, after one warm-up call."""
    run()
    times: list[float] = []
    while not times or (sum(times) < ENOUGH_SECONDS and len(times) < REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def time_on_gpu(run: Callable[[], object]) -> float:
    """Median seconds on the device, replayed as a CUDA graph where the call can be captured."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    replay = _capture(run)
    times = []
    for _ in range(REPEATS):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(CALLS):
            replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / CALLS / 1e3)
    return statistics.median(times)


def _capture(run: Callable[[], object]) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
            run()
    except RuntimeError:  # it synchronises with the host, whose time then counts
        torch.cuda.synchronize()
        return run
    return graph.replay


def matmul_rate(clock: Timer, device: str, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a large matrix product."""
    size = 8192 if device == "cuda" else 1536
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    return 2 * size**3 / clock(lambda: matrix @ matrix)


def copy_rate(clock: Timer, device: str) -> float:
    """Bytes per second, read and written, of a large copy."""
    source = torch.empty(1 << (30 if device == "cuda" else 26), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / clock(lambda: target.copy_(source))
