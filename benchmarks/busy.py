"""Training and search on a busy machine: tokens/s with one thread, with all, and automatically.

    python benchmarks/busy.py                          # idle, then with one busy neighbour process
    python benchmarks/busy.py --turns 3 --seconds 2    # a quick look

Each setting runs in its own process: OMP_NUM_THREADS=1, OMP_NUM_THREADS=cores, and neither set, so
that the count is chosen by measurement. They take turns; the figures are medians over turns. The
ceiling of the automatic choice is the better of the two fixed counts under the same conditions.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import torch
from harness import Check, report
from predicting import words
from training import Task

import regard
from regard.config import PRESETS, TrainSettings, TransformerSettings
from regard.models import build
from regard.text import Batches
from regard.threads import training_threads
from regard.training.distributed import World
from regard.training.trainer import Trainer

BUSY = 0.9  # share of the better fixed count that the automatic one must reach
IDLE = 0.97  # share of torch's own count that it must reach on an idle machine
ADAPT = 5  # turns after each change of the situation that are not counted
LINES = 512  # searched together
WORK = ("training", "search")


def training_step(folder: Path) -> Callable[[], int]:
    """A step of the demo's training, which returns the tokens that it read."""
    task, cpu = Task(folder), torch.device("cpu")
    torch.manual_seed(1)
    settings = TransformerSettings(**{**PRESETS["transformer"]["tiny"], "dropout": 0.0})
    model = build(settings, len(task.source), len(task.target))
    batches = Batches(task.pairs, batch_tokens=2_048, seed=1, max_tokens=512)
    threads = training_threads(cpu)
    trainer = Trainer(
        model, batches, TrainSettings(), 1_000_000, World(1, 0, cpu), rate=7e-3, threads=threads
    )

    def step() -> int:
        trainer.tune()
        return trainer.advance()[1]

    return step


def search_step(folder: Path) -> Callable[[], int]:
    """A search of some words with the usual beam, which returns the tokens that it wrote."""
    model, lines = regard.load("spelling"), iter(words(1_000_000, seed=3))

    def step() -> int:
        answers = model.answers(list(islice(lines, LINES)), first=LINES)
        return sum(len(best[0].ids) + 1 for best in answers)

    return step


def work(kind: str, folder: Path) -> None:
    """Read seconds from standard input; work that long, and print tokens/s."""
    step = {"training": training_step, "search": search_step}[kind](folder)
    print("ready", flush=True)
    for line in sys.stdin:
        start, tokens = time.perf_counter(), 0
        while time.perf_counter() < start + float(line):
            tokens += step()
        print(tokens / (time.perf_counter() - start), flush=True)


class Worker:
    """A process that works when it is told to, with a fixed number of threads or none given."""

    def __init__(self, kind: str, folder: Path, threads: int | None) -> None:
        environment = {
            name: value for name, value in os.environ.items() if "NUM_THREADS" not in name
        }
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        command = [sys.executable, __file__, "--work", kind, "--folder", str(folder)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def rate(self, seconds: float) -> float:
        """Tokens/s over at least these seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "a worker ended early"
        return line


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Inside, this many other processes each keep one core busy."""
    some = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in some:
            process.kill()
            process.wait()


def compare(workers: dict[str, Worker], turns: int, seconds: float) -> dict[str, float]:
    """The median tokens/s of each worker; they take turns, and who begins changes."""
    names, found = list(workers), {name: [] for name in workers}
    for turn in range(-ADAPT, turns):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            rate = workers[name].rate(seconds)
            if turn >= 0:
                found[name].append(rate)
    return {name: statistics.median(rates) for name, rates in found.items()}


def measure(kind: str, folder: Path, options: argparse.Namespace) -> Iterator[Check]:
    """One kind of work: idle, with neighbours, and idle again."""
    cores = len(os.sched_getaffinity(0))
    settings = {"1": 1, str(cores): cores, "automatic": None}
    with ExitStack() as stack:
        workers = {name: Worker(kind, folder, threads) for name, threads in settings.items()}
        for worker in workers.values():
            stack.callback(worker.close)
        for busy in (0, options.neighbours, 0):
            with neighbours(busy):
                rates = compare(workers, options.turns, options.seconds)
            situation = f"{busy} busy neighbours" if busy else "idle"
            columns = "  ".join(f"{name}: {rate:>8,.0f}" for name, rate in rates.items())
            print(f"{kind:10}{situation:20}{columns}  tokens/s", flush=True)
            best, found = max(rates["1"], rates[str(cores)]), rates["automatic"]
            name = f"{kind}, {situation}: automatic, tokens/s"
            yield Check(name, found, best, BUSY * best, found >= BUSY * best)
            if not busy:
                usual = rates[str(cores)]
                name = f"{kind}, idle: automatic / {cores} threads"
                yield Check(name, found / usual, best / usual, IDLE, found >= IDLE * usual)


def main() -> None:
    """Read the options, measure, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=7, help="measurements of each setting")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement")
    parser.add_argument("--neighbours", type=int, default=1, help="busy processes")
    parser.add_argument("--only", choices=WORK, help="one kind of work")
    parser.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        Task(Path(folder))
        kinds = [options.only] if options.only else WORK
        return report("busy", [c for kind in kinds for c in measure(kind, Path(folder), options)])


if __name__ == "__main__":
    main()
