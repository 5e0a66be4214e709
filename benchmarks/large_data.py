"""Ten million pairs from disk: memory that does not grow, and the time to the first step.

    python benchmarks/large_data.py                      # 10⁷ pairs (about 0.25 GB) and 10⁶
    python benchmarks/large_data.py --pairs 1000000      # 10⁶ and 10⁵, some minutes

Each amount is trained in a separate process, with the calls of `regard train --steps 20 --size
tiny`: pairs are read, checked and tokenized, a part is held out, and settings are chosen. Memory is
sampled by stage: anonymous memory is what the processes allocate, resident memory includes pages of
mapped files. "start" is the plan of the first epoch and the first step. The corpora are temporary.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Check, machine, report
from process_memory import FIELDS, MemoryMonitor

PAIR_BYTES = 4 + 4 + 4 + 4  # both lengths, the order of an epoch; temporary masks and batch ends
FLAT = 1.25  # peak at ten times as many pairs, besides PAIR_BYTES
LINEAR = 1.25  # seconds at ten times as many pairs, over ten times the seconds
STAGES = ("read", "choose", "tokenize", "plan", "start", "train")
LETTERS = "aeioulnrstdmkpbg"


def write_pairs(path: Path, count: int, seed: int = 1) -> None:
    """Write pairs of a word of 3 to 5 random syllables and their transcription, as of a
    pronunciation dictionary: nearly all words differ."""
    draw = random.Random(seed)
    syllables = ["".join(draw.choices(LETTERS, k=draw.randint(2, 3))) for _ in range(500)]
    sounds = [f"{syllable.upper()} " for syllable in syllables]
    numbers = range(len(syllables))
    with open(path, "w", encoding="ascii", buffering=1 << 20) as file:
        for _ in range(count):
            word = draw.choices(numbers, k=draw.randint(3, 5))
            spoken = "".join([sounds[i] for i in word])
            file.write(f"{''.join([syllables[i] for i in word])}\t{spoken[:-1]}\n")


def measure_in_process(folder: Path, pairs: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train on so many pairs in a separate process: seconds and megabytes by stage."""
    corpus = folder / f"{pairs}.tsv"
    start = time.perf_counter()
    write_pairs(corpus, pairs)
    print(f"wrote {pairs:,} pairs in {time.perf_counter() - start:.0f} s", flush=True)
    command = [sys.executable, __file__, "--measure", str(corpus), "--steps", str(options.steps)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    finally:
        shutil.rmtree(corpus.with_suffix(".run"), ignore_errors=True)
        corpus.unlink()
    found = json.loads(done.stdout.splitlines()[-1])
    print(stage_table(found), flush=True)
    return found


def measure(corpus: Path, steps: int) -> dict[str, Any]:
    """Inside that process: the stages of `regard train`, each timed."""
    from regard.config import TrainSettings
    from regard.text import Corpus
    from regard.training import run as stages
    from regard.training.display import LineDisplay
    from regard.training.trainer import Trainer

    seconds = dict.fromkeys(STAGES, 0.0)
    first: list[float] = []

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            monitor.stage, start = name, time.perf_counter()
            try:
                return function(*values, **named)
            finally:
                seconds[name] += time.perf_counter() - start

        return call

    def advance(self: Any) -> Any:
        result = plain_advance(self)
        if not first:
            first.append(time.perf_counter())
            monitor.stage = "train"
        return result

    plain_advance, Trainer.advance = Trainer.advance, advance  # type: ignore[method-assign]
    for name in ("read", "choose", "tokenize", "plan"):
        setattr(stages, name, timed(name, getattr(stages, name)))
    stages.train = timed("start", stages.train)
    settings = TrainSettings(steps=steps, evaluations=1)
    start = time.perf_counter()
    with MemoryMonitor() as monitor:
        out = corpus.with_suffix(".run")
        job = stages.Job(Corpus(corpus), out, size="tiny", train=settings)
        card = stages.run(job, LineDisplay(sys.stderr))
    whole = seconds["start"]
    prepared = sum(seconds[name] for name in ("read", "choose", "tokenize", "plan"))
    seconds["start"] = first[0] - start - prepared  # the first plan of batches and step
    seconds["train"] = whole - seconds["start"]
    return {
        "pairs": card["pairs"],
        "seconds": seconds,
        "first_step": first[0] - start,
        "peaks": monitor.peaks,
        "peak": {kind: monitor.peak(kind) for kind in FIELDS},
    }


def stage_table(found: dict[str, Any]) -> str:
    """Seconds and peak memory of each stage."""
    lines = [f"\n{'stage':10}  {'seconds':>8}  " + "  ".join(f"{kind:>13}" for kind in FIELDS)]
    for stage in STAGES:
        peaks = found["peaks"].get(stage, dict.fromkeys(FIELDS, 0.0))
        memory = "  ".join(f"{peaks[kind]:>10,.0f} MB" for kind in FIELDS)
        lines.append(f"{stage:10}  {found['seconds'][stage]:>8.1f}  {memory}")
    lines.append(
        f"{found['pairs']:,} training pairs; first step after {found['first_step']:.1f} s\n"
    )
    return "\n".join(lines)


def compare(small: dict[str, Any], large: dict[str, Any]) -> list[Check]:
    """The checks: flat memory, and a time to the first step in proportion to the pairs."""
    pairs, times = large["pairs"], large["pairs"] / small["pairs"]
    named = f"{pairs:,} pairs"
    data = pairs * PAIR_BYTES / 2**20
    checks = []
    for kind, what in (
        ("own anonymous", "peak anonymous memory, MB"),
        ("own", "peak resident memory, MB"),
        ("all anonymous", "peak anonymous memory with workers, MB"),
    ):
        before, value = small["peak"][kind], large["peak"][kind]
        checks.append(Check(f"{small['pairs']:,} pairs: {what}", before, None, None, True))
        target = FLAT * before + data
        checks.append(Check(f"{named}: {what}", value, before + data, target, value <= target))
    for stage in ("read", "choose", "tokenize", "plan", "start"):
        value = large["seconds"][stage]
        checks.append(Check(f"{named}: seconds of {stage}", value, None, None, True))
    before, value = small["first_step"], large["first_step"]
    checks.append(
        Check(f"{small['pairs']:,} pairs: seconds to the first step", before, None, None, True)
    )
    target = LINEAR * times * before
    checks.append(
        Check(f"{named}: seconds to the first step", value, times * before, target, value <= target)
    )
    return checks


def main() -> None:
    """Measure both amounts and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=10**7, help="pairs of the larger corpus")
    parser.add_argument("--steps", type=int, default=20, help="training steps on each")
    parser.add_argument("--folder", type=Path, help="folder of the temporary files")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return print(json.dumps(measure(options.measure, options.steps)))
    print(f"{machine()}, {os.cpu_count()} cores\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        amounts = options.pairs // 10, options.pairs
        found = [measure_in_process(Path(name), pairs, options) for pairs in amounts]
    return report("large_data", compare(*found))


if __name__ == "__main__":
    main()
