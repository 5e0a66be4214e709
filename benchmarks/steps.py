"""Timed training steps: windows of many steps with one synchronisation, the losses of a run, and
the CUDA graphs and Triton kernels it needed."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from regard.config import TrainSettings, TransformerSettings
from regard.models import build
from regard.text import Batches
from regard.text.tokenized_pairs import TokenizedPairs
from regard.training.distributed import World
from regard.training.trainer import Trainer

TOTAL = 10_000  # run length of the schedule
Step = Callable[[], int]


@dataclass(frozen=True)
class Speed:
    """Medians over windows, and the peak of GPU memory in gigabytes."""

    tokens: float
    steps: float
    gigabytes: float


@dataclass(frozen=True)
class Captures:
    """The warm-up of a run: seconds, CUDA graphs (`late`: captured while timed; `epoch`: of a whole
    epoch) and Triton kernels compiled or loaded (`unready`: after the warm-up)."""

    seconds: float
    graphs: int
    late: int
    kernels: int
    epoch: int
    unready: int

    def __str__(self) -> str:
        return (
            f"ready in {self.seconds:.0f} s: {self.graphs} graphs ({self.late} while timed), "
            f"{self.kernels} Triton kernels"
        )


def trainer(
    pairs: TokenizedPairs,
    vocabularies: tuple[int, int],
    settings: TransformerSettings,
    train: TrainSettings,
    batch_tokens: int,
    device: torch.device,
) -> Trainer:
    """A trainer as in `regard train`; equal arguments give equal weights and batches."""
    torch.manual_seed(1)
    model = build(settings, *vocabularies).to(device)
    batches = Batches(pairs, batch_tokens=batch_tokens, seed=train.seed, max_tokens=512)
    return Trainer(model, batches, train, TOTAL, World(1, 0, device), rate=1e-3)


def timed_training(
    made: Trainer, *, windows: int, count: int, onwards: bool = False
) -> tuple[Speed, Captures]:
    """The speed of Regard's training after its warm-up, and its captures. Every window has the same
    batches; a shape is captured when it repeats, so two rounds of warm-up cover all of them.
    `onwards` also trains the rest of the epoch, untimed, to count the captures of new batches."""

    def rewind() -> None:
        _rewind(made)

    with compiled() as kernels:
        start = time.perf_counter()
        for _ in range(2):
            rewind()
            speed(lambda: made.advance()[1], warm=count, windows=0, count=0)
        synchronize()
        ready, early, before = time.perf_counter() - start, _graphs(made), len(kernels)
        found = speed(lambda: made.advance()[1], warm=0, windows=windows, count=count, begin=rewind)
        timed = _graphs(made)
        while onwards and made.epoch == 0:
            made.advance()
    return found, Captures(
        ready, timed, timed - early, before, _graphs(made), len(kernels) - before
    )


def prepared_speed(made: Trainer, *, windows: int, count: int) -> Speed:
    """The speed with all batches prepared in advance; a slower run waits for its batches."""
    made.prefetcher.take = cache(made.prefetcher.take)  # type: ignore[method-assign]
    _rewind(made)
    return speed(
        lambda: made.advance()[1],
        warm=count,
        windows=windows,
        count=count,
        begin=lambda: _rewind(made),
    )


def _rewind(made: Trainer) -> None:
    made.epoch, made.epoch_step = 0, 0


def speed(
    step: Step, *, warm: int, windows: int, count: int, begin: Callable[[], None] = lambda: None
) -> Speed:
    """The speed of a step that returns its tokens; `begin` runs before each window."""
    for _ in range(warm):
        step()
    found = []
    for _ in range(windows):
        begin()
        synchronize()
        start = time.perf_counter()
        tokens = sum(step() for _ in range(count))
        synchronize()
        seconds = time.perf_counter() - start
        found.append((tokens / seconds, count / seconds))
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    tokens_steps = [statistics.median(column) for column in zip(*found, strict=True)] or [0.0, 0.0]
    return Speed(*tokens_steps, peak)


def losses(made: Trainer, count: int) -> list[float]:
    """The losses of the first steps, read only at the end."""
    return torch.stack([made.advance()[0].detach().clone() for _ in range(count)]).tolist()


@contextmanager
def compiled() -> Iterator[list[str]]:
    """Collects the Triton kernels compiled or loaded inside; none without Triton."""
    names: list[str] = []
    try:
        from triton import knobs
    except ImportError:
        yield names
        return
    before = knobs.compilation.listener

    def listener(*, src: Any, **rest: Any) -> None:
        names.append(getattr(src, "name", "?"))

    knobs.compilation.listener = listener
    try:
        yield names
    finally:
        knobs.compilation.listener = before


def _graphs(made: Trainer) -> int:
    return len(made.graph_step.graphs) if made.graph_step else 0


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free_memory() -> None:
    """Free the memory of the previous run and reset the peak."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
