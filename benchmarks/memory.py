"""Memory of training: long pairs under a fixed bound, and a corpus of gigabytes.

    python benchmarks/memory.py                  # 200,000 pairs of 1–400 tokens; then 0.1 GB
    python benchmarks/memory.py --gigabytes 2    # a larger corpus, deleted afterwards
 Every training is a separate process that prepares, trains and then reads batches of several
epochs, with the same calls as `regard train`. Its own peak is reported by the kernel (VmHWM); the
peak of all its processes is sampled.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import Check, machine, report
from process_memory import MemoryMonitor, megabytes

BOUND, DATA_BOUND = 1536, 1024  # megabytes
EPOCHS, BATCHES_READ = 3, 300  # after training: epochs, and batches read from each
LONG = 400  # tokens per side of the first corpus
A_PAIR = 4 + 4 + 4  # least bytes per pair: both lengths and an index


def long_pairs(path: Path, count: int, seed: int = 1) -> None:
    """Write pairs of 1 to LONG random words; the target is the source reversed and cut."""
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
    """Write `size` bytes of sentence pairs: 10 to 30 synthetic words per side."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("aeioulnrstdmkp", k=draw.randint(2, 9))) for _ in range(20_000)]
    phrases = [" ".join(draw.choices(words, k=5)) for _ in range(50_000)]
    written = 0
    with open(path, "w", encoding="ascii", buffering=1 << 20) as file:
        while written < size:
            left, right = (" ".join(draw.choices(phrases, k=draw.randint(2, 6))) for _ in range(2))
            written += file.write(f"{left}\t{right}\n")


def measure_in_process(
    corpus: Path, kind: str, options: argparse.Namespace, *, show: bool = False
) -> dict[str, Any]:
    """Train on a corpus in a separate process: its peaks in megabytes, pairs and seconds."""
    out = corpus.with_suffix(".run")
    command = [
        sys.executable,
        __file__,
        "--measure",
        str(corpus),
        "--kind",
        kind,
        "--steps",
        str(options.steps),
    ]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=None if show else subprocess.DEVNULL, check=True
        )
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(corpus: Path, kind: str, steps: int) -> dict[str, Any]:
    """Inside that process: prepare and train as `regard train`, then read batches of some
    epochs."""
    from regard.config import TextSettings, TrainSettings
    from regard.text import Corpus
    from regard.training.display import LineDisplay
    from regard.training.run import Job, run

    out, few = corpus.with_suffix(".run"), corpus.with_suffix(".few")
    with open(corpus, encoding="utf-8") as lines:
        few.write_text("".join(line for line, _ in zip(lines, range(8), strict=False)))
    text = TextSettings(
        source_tokenizer=kind,
        target_tokenizer=kind,
        vocabulary_size=8000 if kind == "bpe" else None,
    )
    settings = TrainSettings(steps=steps, evaluations=1)
    start = time.perf_counter()
    with MemoryMonitor() as monitor:
        job = Job(Corpus(corpus), out, held_out=Corpus(few), size="tiny", text=text, train=settings)
        card = run(job, LineDisplay(sys.stderr))
        trained = time.perf_counter() - start
        read = epochs(out)
    own = megabytes("self", "VmHWM")
    peaks = {"own": own, "all": max(monitor.peak("all"), own)}
    return {**peaks, "pairs": card["pairs"], "trained_seconds": trained, "read_tokens": read}


def epochs(out: Path) -> int:
    """Read some batches of several epochs."""
    from regard.text import Batches, TokenizedPairs

    batches = Batches(
        TokenizedPairs.open(out / "data" / "ids"), batch_tokens=1024, seed=1, max_tokens=512
    )
    tokens = 0
    for epoch in range(1, EPOCHS + 1):
        for step in range(min(BATCHES_READ, batches.steps(epoch))):
            batch = batches.at(epoch, step)
            tokens += len(batch.source.values) + len(batch.target.values)
    return tokens


def check_long_pairs(folder: Path, options: argparse.Namespace) -> list[Check]:
    """Long pairs under a fixed bound, including all processes."""
    corpus = folder / "long.tsv"
    long_pairs(corpus, options.pairs)
    size = corpus.stat().st_size / 2**20
    found = measure_in_process(corpus, "words", options, show=options.show)
    corpus.unlink()
    print(
        f"{found['pairs']:,} pairs of 1–{LONG} tokens ({size:,.0f} MB): "
        f"peak {found['own']:,.0f} MB, with its workers "
        f"{found['all']:,.0f} MB; {found['trained_seconds']:.0f} s to prepare "
        f"and train {options.steps} steps",
        flush=True,
    )
    floor = found["pairs"] * A_PAIR / 2**20
    name = f"{found['pairs']:,} pairs of 1–{LONG}: peak MB"
    return [
        Check(name, found["own"], floor, BOUND, found["own"] <= BOUND),
        Check(f"{name}, workers too", found["all"], floor, BOUND, found["all"] <= BOUND),
    ]


def check_large_corpus(folder: Path, options: argparse.Namespace) -> list[Check]:
    """A large corpus and a small one: the difference is the memory of the data."""
    small, large = folder / "small.tsv", folder / "large.tsv"
    sentences(small, 2e6)
    base = measure_in_process(small, "bpe", options)
    start = time.perf_counter()
    sentences(large, options.gigabytes * 1e9)
    print(f"made {options.gigabytes:g} GB in {time.perf_counter() - start:.0f} s", flush=True)
    found = measure_in_process(large, "bpe", options, show=options.show)
    large.unlink()
    grown = found["own"] - base["own"]
    print(
        f"{found['pairs']:,} pairs ({options.gigabytes:g} GB): peak {found['own']:,.0f} MB, "
        f"{base['own']:,.0f} MB on a "
        f"small corpus, so {grown:,.0f} MB for the data; with workers {found['all']:,.0f} MB; "
        f"{found['trained_seconds']:.0f} s to prepare and take {options.steps} steps",
        flush=True,
    )
    floor = found["pairs"] * A_PAIR / 2**20
    return [
        Check(
            f"{options.gigabytes:g} GB: MB for the data",
            grown,
            floor,
            DATA_BOUND,
            grown <= DATA_BOUND,
        )
    ]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="peak memory of training, with its lower bound")
    parser.add_argument(
        "--pairs", type=int, default=200_000, help="pairs of the first corpus; 0 skips it"
    )
    parser.add_argument(
        "--gigabytes", type=float, default=0.1, help="size of the second corpus; 0 skips it"
    )
    parser.add_argument("--steps", type=int, default=20, help="training steps on each")
    parser.add_argument("--folder", type=Path, help="folder of the temporary files")
    parser.add_argument("--show", action="store_true", help="show progress")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure both parts and report."""
    options = arguments()
    if options.measure:
        return print(json.dumps(measure(options.measure, options.kind, options.steps)))
    print(f"{machine()}\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        checks = check_long_pairs(Path(folder), options) if options.pairs else []
        checks += check_large_corpus(Path(folder), options) if options.gigabytes else []
    return report("memory", checks)


if __name__ == "__main__":
    main()
