"""Memory: a corpus of long pairs under a fixed bound, and one of gigabytes with little of it resident.

    python benchmarks/memory.py                  # 200,000 pairs of 1–400 tokens; then 0.1 GB
    python benchmarks/memory.py --gigabytes 2    # the second part in earnest; its files are deleted afterwards

Every training is a process of its own that prepares, trains and then plans and reads several epochs, through the same
calls as `regard train`. Its own peak is the kernel's (VmHWM); that of all its processes together is sampled.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from harness import Check, machine, report

BOUND, DATA_BOUND = 1536, 1024  # megabytes
EPOCHS, BATCHES_READ = 3, 300  # planned after training, and read from each
LONG = 400  # tokens on a side of the first corpus
A_PAIR = 4 + 4 + 4  # bytes nobody can do without: both lengths, and a place in the epoch's order


def long_pairs(path: Path, count: int, seed: int = 1) -> None:
    """Random words of 64, 1 to LONG on each side, the target being the source reversed and cut."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{i:02} " for i in range(64)], "S4")
    with open(path, "wb") as file:
        for start in range(0, count, 1000):
            lengths = rng.integers(1, LONG + 1, (min(1000, count - start), 2))
            for source, target in lengths.tolist():
                ids = rng.integers(0, len(words), max(source, target))
                left, right = words[ids[:source]].tobytes(), words[ids[::-1][:target]].tobytes()
                file.write(left[:-1] + b"\t" + right[:-1] + b"\n")


def sentences(path: Path, size: float, seed: int = 1) -> None:
    """`size` bytes of sentence pairs: 10 to 30 made-up words a side, joined from phrases."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("aeioulnrstdmkp", k=draw.randint(2, 9))) for _ in range(20_000)]
    phrases = [" ".join(draw.choices(words, k=5)) for _ in range(50_000)]
    written = 0
    with open(path, "w", encoding="ascii", buffering=1 << 20) as file:
        while written < size:
            left, right = (" ".join(draw.choices(phrases, k=draw.randint(2, 6))) for _ in range(2))
            written += file.write(f"{left}\t{right}\n")


def measured(corpus: Path, kind: str, options: argparse.Namespace, *, show: bool = False) -> dict[str, Any]:
    """Train on a corpus in a process of its own: its peaks in megabytes, its pairs and seconds."""
    out = corpus.with_suffix(".run")
    command = [sys.executable, __file__, "--measure", str(corpus), "--kind", kind, "--steps", str(options.steps)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=None if show else subprocess.DEVNULL, check=True)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(corpus: Path, kind: str, steps: int) -> dict[str, Any]:
    """Inside that process: prepare and train as `regard train` does, then some epochs of planning and reading."""
    from regard.config import TextSettings, TrainSettings
    from regard.text import Corpus
    from regard.train.run import Job, run

    out, few = corpus.with_suffix(".run"), corpus.with_suffix(".few")
    with open(corpus, encoding="utf-8") as lines:
        few.write_text("".join(line for line, _ in zip(lines, range(8), strict=False)))
    text = TextSettings(source_tokenizer=kind, target_tokenizer=kind, vocabulary_size=8000 if kind == "bpe" else None)
    settings = TrainSettings(steps=steps, evaluations=1)
    start = time.perf_counter()
    with Watch() as watch:
        job = Job(Corpus(corpus), out, held_out=Corpus(few), size="tiny", text=text, train=settings)
        card = run(job, progress(sys.stderr))
        trained = time.perf_counter() - start
        read = epochs(out)
    peaks = {"own": resident("self", "VmHWM"), "all": max(watch.peak, resident("self", "VmHWM"))}
    return {**peaks, "pairs": card["pairs"], "trained_seconds": trained, "read_tokens": read}


def epochs(out: Path) -> int:
    """Plan several epochs and read some batches of each, from all over the corpus."""
    from regard.text import Batches, TokenizedPairs

    batches = Batches(TokenizedPairs.open(out / "data" / "ids"), batch_tokens=1024, seed=1, max_tokens=512)
    tokens = 0
    for epoch in range(1, EPOCHS + 1):
        for step in range(min(BATCHES_READ, batches.steps(epoch))):
            batch = batches.at(epoch, step)
            tokens += len(batch.source.values) + len(batch.target.values)
    return tokens


def progress(file: TextIO) -> Any:
    """The product's plain view, with its lines of progress at most every five seconds."""
    from regard.train.view import Plain

    class Progress(Plain):
        said_at = float("-inf")

        def said(self, text: str) -> None:
            if not text.startswith("tokenised") or time.monotonic() - self.said_at >= 5:
                self.said_at = time.monotonic()
                super().said(text)

    return Progress(file)


class Watch:
    """Looks again and again at what this process and its children hold together; pages they share count twice."""

    def __init__(self, every: float = 0.05) -> None:
        self.peak = 0.0
        self._every, self._over = every, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(self._every):
            self.peak = max(self.peak, sum(resident(process, "VmRSS") for process in ("self", *_children())))


def _children() -> Iterator[str]:
    """The numbers of the processes this one started."""
    for task in Path("/proc/self/task").iterdir():
        try:
            yield from (task / "children").read_text().split()
        except OSError:  # that thread has ended
            continue


def resident(process: str, field: str) -> float:
    """Megabytes a process holds (VmRSS) or held at its peak (VmHWM); none when it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0


def bounded(folder: Path, options: argparse.Namespace) -> list[Check]:
    """Long pairs under a fixed bound, all processes together."""
    corpus = folder / "long.tsv"
    long_pairs(corpus, options.pairs)
    size = corpus.stat().st_size / 2**20
    found = measured(corpus, "words", options, show=options.show)
    corpus.unlink()
    print(
        f"{found['pairs']:,} pairs of 1–{LONG} tokens ({size:,.0f} MB): peak {found['own']:,.0f} MB, with its workers "
        f"{found['all']:,.0f} MB; {found['trained_seconds']:.0f} s to prepare and take {options.steps} steps",
        flush=True,
    )
    floor = found["pairs"] * A_PAIR / 2**20
    name = f"{found['pairs']:,} pairs of 1–{LONG}: peak MB"
    return [
        Check(name, found["own"], floor, BOUND, found["own"] <= BOUND),
        Check(f"{name}, workers too", found["all"], floor, BOUND, found["all"] <= BOUND),
    ]


def larger(folder: Path, options: argparse.Namespace) -> list[Check]:
    """A large corpus against the same training on a small one: the difference is what the data holds."""
    small, large = folder / "small.tsv", folder / "large.tsv"
    sentences(small, 2e6)
    base = measured(small, "bpe", options)
    start = time.perf_counter()
    sentences(large, options.gigabytes * 1e9)
    print(f"made {options.gigabytes:g} GB in {time.perf_counter() - start:.0f} s", flush=True)
    found = measured(large, "bpe", options, show=options.show)
    large.unlink()
    grown = found["own"] - base["own"]
    print(
        f"{found['pairs']:,} pairs ({options.gigabytes:g} GB): peak {found['own']:,.0f} MB, {base['own']:,.0f} MB on a "
        f"small corpus, so {grown:,.0f} MB for the data; with workers {found['all']:,.0f} MB; "
        f"{found['trained_seconds']:.0f} s to prepare and take {options.steps} steps",
        flush=True,
    )
    floor = found["pairs"] * A_PAIR / 2**20
    return [Check(f"{options.gigabytes:g} GB: MB for the data", grown, floor, DATA_BOUND, grown <= DATA_BOUND)]


def arguments() -> argparse.Namespace:
    """What may be chosen."""
    parser = argparse.ArgumentParser(description="the memory that training holds, beside what it cannot do without")
    parser.add_argument("--pairs", type=int, default=200_000, help="pairs of the first corpus; 0 leaves it out")
    parser.add_argument("--gigabytes", type=float, default=0.1, help="size of the second; 0 leaves it out")
    parser.add_argument("--steps", type=int, default=20, help="training steps on each")
    parser.add_argument("--folder", type=Path, help="where the temporary files go (default: the system's place)")
    parser.add_argument("--show", action="store_true", help="show the progress of preparing and training")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Both parts."""
    options = arguments()
    if options.measure:
        return print(json.dumps(measure(options.measure, options.kind, options.steps)))
    print(f"{machine()}\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        checks = bounded(Path(folder), options) if options.pairs else []
        checks += larger(Path(folder), options) if options.gigabytes else []
    return report("memory", checks)


if __name__ == "__main__":
    main()
