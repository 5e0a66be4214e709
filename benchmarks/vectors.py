"""Neighbours and analogies over a million word vectors, and reading vector files.

    python benchmarks/vectors.py

A query must read the whole table once, so its ceiling is the size of the table over the measured
memory bandwidth. The ceiling of a file is the time to read its bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from regard.vectors import Vectors


class Check(NamedTuple):
    name: str
    value: float  # seconds, the median
    ceiling: float  # seconds to read the bytes
    target: float  # seconds
    ok: bool


def seconds(action: Callable[[], object], repeats: int = 7) -> list[float]:
    """The time of each repeat after a warm-up."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return times


def check(
    name: str, action: Callable[[], object], ceiling: float, target: float, repeats: int = 7
) -> Check:
    value = statistics.median(seconds(action, repeats))
    return Check(name, round(value, 4), round(ceiling, 4), target, value <= target)


def queries(words: int, dim: int) -> list[Check]:
    """Neighbours and analogies over a large random table."""
    vectors = Vectors([f"word{i}" for i in range(words)], torch.randn(words, dim))
    size = vectors.table.numel() * vectors.table.element_size()
    bandwidth = size / min(seconds(vectors.table.sum))
    print(f"{words} words × {dim}: {size / 1e6:.0f} MB, read at {bandwidth / 1e9:.1f} GB/s\n")
    ceiling = size / bandwidth
    label = f"{words}x{dim}, seconds"
    return [
        check(f"neighbours {label}", lambda: vectors.neighbours("word5"), ceiling, 0.25),
        check(
            f"analogy {label}", lambda: vectors.analogy("word5", "word6", "word7"), ceiling, 0.25
        ),
    ]


def files(words: int, dim: int) -> list[Check]:
    """Read each format from a file in the page cache."""
    vectors = Vectors([f"word{i}" for i in range(words)], torch.randn(words, dim))
    checks = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors"
        for format, target in (("word2vec", 5.0), ("glove", 5.0), ("word2vec-binary", 1.0)):
            vectors.write(path, format=format)
            ceiling = min(seconds(path.read_bytes, 3))
            checks.append(
                check(
                    f"read {format} {words}x{dim}, seconds",
                    lambda: Vectors.read(path),
                    ceiling,
                    target,
                    3,
                )
            )
    return checks


def machine() -> str:
    """Processor, cores and torch version."""
    name = platform.processor() or platform.machine()
    if shutil.which("lscpu"):
        lines = subprocess.run(
            ["lscpu"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        name = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("Model name")), name
        )
    return f"{name}, {os.cpu_count()} cores, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, default=1_000_000, help="words of the queried table")
    parser.add_argument("--dim", type=int, default=100, help="dimensions of a vector")
    parser.add_argument("--file-words", type=int, default=100_000, help="words of the files")
    arguments = parser.parse_args()
    checks = queries(arguments.words, arguments.dim) + files(arguments.file_words, arguments.dim)
    print(f"{'':42}{'seconds':>10}{'ceiling':>10}{'target':>10}")
    for row in checks:
        verdict = "ok" if row.ok else "TOO SLOW"
        print(f"{row.name:42}{row.value:10.4f}{row.ceiling:10.4f}{row.target:10.2f}  {verdict}")
    print(
        json.dumps(
            {
                "benchmark": "vectors",
                "machine": machine(),
                "checks": [row._asdict() for row in checks],
            }
        )
    )


if __name__ == "__main__":
    main()
