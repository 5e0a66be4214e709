"""Shards of `regard predict`, joined, against a single run: equal bytes after kills, and the rate.

    python benchmarks/bulk.py                       # 10⁶ lines, 8 shards, 10 kills, and through Ray
    python benchmarks/bulk.py --lines 10000 --rate-lines 4000     # a short run
    python benchmarks/bulk.py --parts rate                        # or shards, ray

Two processes with one thread each answer 8 shards; one of them is killed again and again. The same
input goes through Ray, where it is installed. The rate of two such processes is compared with that
of one `regard predict` with two threads, in alternating runs; both include starting up.
"""

import argparse
import importlib.util
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from harness import Check, report
from predicting import regard, words

PARTS = ("shards", "ray", "rate")
SHARDS, PROCESSES = 8, 2
RATE = 0.95
RAY = """
import sys, regard
regard.bulk.predict(sys.argv[1], sys.argv[2], sys.argv[3], parts=8, workers=2)
"""
RAY_ENV = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


def run(command: list[str], threads: int) -> None:
    """Run a command to its end."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    subprocess.run(command, env=env, check=True, stderr=subprocess.DEVNULL)


class Killer:
    """Runs the shards of one process and kills it `kills` times, spread over its shards."""

    def __init__(self, kills: int, shard_seconds: float) -> None:
        self.left, self.hits = kills, 0
        self._per_shard = -(-kills // max(1, SHARDS // PROCESSES - 1))
        self._seconds, self._draw = shard_seconds, random.Random(1)

    def run(self, command: list[str], partial: Path) -> None:
        """Run a shard to its end, with kills on the way."""
        for _ in range(min(self._per_shard, self.left)):
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
            while process.poll() is None and not partial.exists():
                time.sleep(0.01)
            time.sleep(self._draw.uniform(0, self._seconds / (self._per_shard + 1)))
            process.kill()
            self.left -= 1
            self.hits += process.wait() < 0
        run(command, 1)


def answer_shards(bundle: str, data: Path, out: Path, killer: Killer | None = None) -> None:
    """Answer all shards on PROCESSES processes and join them; `killer` runs the first process."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(1, SHARDS + 1):
        waiting.put(number)
    errors = []

    def work(own: Killer | None) -> None:
        try:
            while True:
                number = waiting.get_nowait()
                shard = ("--output", out, "--shard", f"{number}/{SHARDS}")
                command = regard("predict", bundle, "--input", data, *shard)
                name = f"{out.name}.shard-{number:03}-of-{SHARDS:03}.partial"
                run(command, 1) if own is None else own.run(command, out.with_name(name))
        except queue.Empty:
            pass
        except Exception as error:
            errors.append(error)

    workers = [
        threading.Thread(target=work, args=(killer if first else None,))
        for first in (True, *[False] * (PROCESSES - 1))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    subprocess.run(regard("join", out, "--remove"), check=True, stderr=subprocess.DEVNULL)


def differences(one: Path, other: Path) -> int:
    """The number of lines that differ; at least 1 if the bytes do."""
    if one.read_bytes() == other.read_bytes():
        return 0
    left, right = one.read_bytes().split(b"\n"), other.read_bytes().split(b"\n")
    differing = sum(a != b for a, b in zip(left, right, strict=False))
    return max(1, differing + abs(len(left) - len(right)))


def equality(bundle: str, home: Path, count: int, kills: int, parts: Sequence[str]) -> list[Check]:
    """Joined shards and the output through Ray, against a single run."""
    data, whole = (home / name for name in ("lines.txt", "whole.txt"))
    data.write_text("".join(f"{word}\n" for word in words(count)))
    start = time.perf_counter()
    run(regard("predict", bundle, "--input", data, "--output", whole), PROCESSES)
    seconds = time.perf_counter() - start
    print(f"a single run: {count:,} lines in {seconds:.1f} s", flush=True)
    checks = []
    if "shards" in parts:
        killer = Killer(kills, PROCESSES * seconds / SHARDS)
        answer_shards(bundle, data, home / "out.txt", killer)
        hits, found = killer.hits, differences(whole, home / "out.txt")
        name = f"{count:,} lines in {SHARDS} shards, lines that differ from a single run"
        checks += [
            Check("kills of a shard's process", hits, kills, kills, hits == kills),
            Check(name, found, 0, 0, found == 0),
        ]
    if "ray" in parts and importlib.util.find_spec("ray") is None:
        print("left out: the check through Ray, which is not installed")
    elif "ray" in parts:
        found = through_ray(bundle, data, whole)
        name = f"{count:,} lines through Ray, lines that differ from a single run"
        checks.append(Check(name, found, 0, 0, found == 0))
    return checks


def through_ray(bundle: str, data: Path, whole: Path) -> int:
    """The number of lines that differ between Ray's output and that of a single run."""
    out = data.with_name("ray.txt")
    program, start = [sys.executable, "-c", RAY, str(data), bundle, str(out)], time.perf_counter()
    done = subprocess.run(program, env={**os.environ, **RAY_ENV}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    print(f"through Ray: {time.perf_counter() - start:.1f} s, with its start", flush=True)
    return differences(whole, out)


def rates(bundle: str, home: Path, count: int, rounds: int) -> list[Check]:
    """The rate of the shards over that of a plain run on as many threads, alternating."""
    data = home / "rate.txt"
    data.write_text("".join(f"{word}\n" for word in words(count, seed=2)))
    plain, sharded = [], []
    for number in range(rounds + 1):  # the first round warms up
        start = time.perf_counter()
        run(regard("predict", bundle, "--input", data, "--output", home / "plain.txt"), PROCESSES)
        middle = time.perf_counter()
        answer_shards(bundle, data, home / "sharded.txt")
        end = time.perf_counter()
        if number:
            plain.append(count / (middle - start))
            sharded.append(count / (end - middle))
            print(f"plain {plain[-1]:,.0f} lines/s, shards {sharded[-1]:,.0f} lines/s", flush=True)
    ratio = statistics.median(b / a for a, b in zip(plain, sharded, strict=True))
    return [
        Check("plain run, lines/s", statistics.median(plain), None, None, True),
        Check("shards, lines/s", statistics.median(sharded), None, None, True),
        Check("rate of the shards / plain", ratio, 1.0, RATE, ratio >= RATE),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", nargs="?", default="spelling", help="model to run")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the input")
    parser.add_argument("--rate-lines", type=int, default=200_000, help="lines of each timed run")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each kind")
    parser.add_argument("--kills", type=int, default=10, help="kills of the first process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        checks, parts = [], options.parts
        if "shards" in parts or "ray" in parts:
            checks += equality(options.bundle, home, options.lines, options.kills, parts)
        if "rate" in parts:
            checks += rates(options.bundle, home, options.rate_lines, options.rounds)
    report("bulk", checks)


if __name__ == "__main__":
    main()
