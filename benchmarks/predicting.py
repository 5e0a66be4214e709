"""`regard predict` from a cold start and on a long file: rate, memory, kill and resume.

    python benchmarks/predicting.py runs/demo/bundle                 # 200,000 words, killed twice
    python benchmarks/predicting.py                                  # trains the demo model first
    python benchmarks/predicting.py runs/demo/bundle --lines 5000    # a short run

Every figure is measured on the command itself, in a separate process. Ceilings: importing torch for
the cold start; for the long file, searching the same words within one process without files.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import Check, report

ONE, MANY = 3.0, 5.0  # seconds for one word and for 2,000, from a cold start
REPEATS = 5
STEADY = 0.9  # the last quarter's rate over the first's
GROWTH = 1.1  # the peak of the last quarter's memory over that of the second


def words(count: int, seed: int = 1) -> list[str]:
    """Shuffled words of the dictionary, repeated if there are too few."""
    from regard.training.cmudict import dictionary

    known, draw = sorted({word for word, _ in dictionary()}), random.Random(seed)
    found: list[str] = []
    while len(found) < count:
        draw.shuffle(known)
        found += known
    return found[:count]


def regard(*arguments: object) -> list[str]:
    """The command line of a `regard` command."""
    return [sys.executable, "-m", "regard", *map(str, arguments)]


def seconds(command: list[str], repeats: int = REPEATS) -> float:
    """The median wall time of a command without its first run."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[len(times[1:]) // 2]


def cold(bundle: Path, home: Path, beam: int) -> list[Check]:
    """One word and 2,000 words, including all loading."""
    some = home / "some.txt"
    some.write_text("".join(f"{word}\n" for word in words(2_000, seed=2)))
    torch = seconds([sys.executable, "-c", "import torch"])
    one = seconds(regard("predict", bundle, "attention"))
    checks = [Check("one word from a cold start, s", one, torch, ONE, one <= ONE)]
    for size in sorted({1, beam}):
        many = seconds(regard("predict", bundle, "--input", some, "--beam", size), 3)
        checks.append(Check(f"2,000 words, beam {size}, s", many, torch, MANY, many <= MANY))
    return checks


def search_rates(bundle: Path, beam: int) -> list[Check]:
    """Words/s of the search, greedy and with a beam, after loading."""
    some, wanted = words(5_000, seed=3), {1: 1_500.0, beam: 700.0}
    rates = {size: in_process_rate(bundle, some, size) for size in wanted}
    return [
        Check(
            f"search, beam {size}, words/s",
            rates[size],
            None,
            wanted[size],
            rates[size] >= wanted[size],
        )
        for size in wanted
    ]


def monitor(
    process: subprocess.Popen[bytes], progress: Path, every: float = 0.1
) -> Iterator[tuple[float, int, float]]:
    """While a job runs: the time, the committed lines and its resident megabytes."""
    while process.poll() is None:
        try:
            done = json.loads(progress.read_text())["lines"]
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            done, pages = 0, 0
        yield time.perf_counter(), done, pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        time.sleep(every)


def long(bundle: Path, home: Path, count: int, beam: int, kills: int) -> list[Check]:
    """A long file, uninterrupted and with kills: rate and memory by quarter, lost or doubled
    lines."""
    data, whole, killed = (home / name for name in ("lines.txt", "whole.txt", "killed.txt"))
    asked = words(count)
    data.write_text("".join(f"{word}\n" for word in asked))
    command = regard("predict", bundle, "--input", data, "--beam", beam, "--output")
    process = subprocess.Popen([*command, str(whole)])
    marks = [mark for mark in monitor(process, home / "whole.txt.progress") if mark[2] and mark[1]]
    end = time.perf_counter()
    assert process.returncode == 0
    marks.append((end, count, marks[-1][2]))
    rates, peaks = zip(*(quarter(marks, count, part) for part in range(4)), strict=True)
    print("\nquarter   lines/s   peak MB")
    for part, (rate, peak) in enumerate(zip(rates, peaks, strict=True), 1):
        print(f"{part:>7}  {rate:>8,.0f}  {peak:>8,.0f}")
    rate = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    steady, grown = rates[3] / rates[0], peaks[3] / peaks[1]
    ceiling = in_process_rate(bundle, asked, beam)
    run_with_kills(command, killed, count, kills)
    lines = killed.read_text().splitlines()
    return [
        Check(
            f"{count:,} lines, beam {beam}, lines/s",
            rate,
            ceiling,
            0.9 * ceiling,
            rate >= 0.9 * ceiling,
        ),
        Check("rate of the last quarter / the first", steady, 1.0, STEADY, steady >= STEADY),
        Check("memory of the last quarter / the second", grown, 1.0, GROWTH, grown <= GROWTH),
        Check("peak memory, MB", max(peaks), None, 2_000, max(peaks) <= 2_000),
        Check("lines lost after the kills", count - len(lines), 0, 0, len(lines) >= count),
        Check(
            "lines doubled after the kills", max(0, len(lines) - count), 0, 0, len(lines) <= count
        ),
        Check(
            "lines that differ from the whole run",
            *count_differences(lines, whole),
            0,
            lines == whole.read_text().splitlines(),
        ),
    ]


def count_differences(lines: list[str], whole: Path) -> tuple[float, float]:
    """The number of lines that differ from the uninterrupted run."""
    right = whole.read_text().splitlines()
    return abs(len(right) - len(lines)) + sum(a != b for a, b in zip(right, lines, strict=False)), 0


def quarter(marks: list[tuple[float, int, float]], count: int, part: int) -> tuple[float, float]:
    """The rate and peak memory within one quarter of the lines."""
    low, high = part * count / 4, (part + 1) * count / 4
    first = min(marks, key=lambda mark: abs(mark[1] - low))
    last = min(marks, key=lambda mark: abs(mark[1] - high))
    inner = [mark[2] for mark in marks if first[0] <= mark[0] <= last[0]]
    return (last[1] - first[1]) / max(1e-9, last[0] - first[0]), max(inner)


def in_process_rate(bundle: Path, asked: list[str], beam: int, most: int = 20_000) -> float:
    """Words/s without reading, writing or loading."""
    script = (
        "import sys, time, json, regard\n"
        f"t = regard.load({str(bundle)!r}); search = t.search(beam={beam})\n"
        "words = json.load(sys.stdin)\n"
        "list(t.answers(words[:500], search)); start = time.perf_counter()\n"
        "list(t.answers(words, search, first=8192))\n"
        "print(len(words) / (time.perf_counter() - start))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(asked[:most]),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def run_with_kills(command: list[str], out: Path, count: int, kills: int) -> None:
    """Run the job, kill it at equal intervals, then let it finish."""
    progress = out.with_name(f"{out.name}.progress")
    for number in range(1, kills + 1):
        process = subprocess.Popen([*command, str(out)], stderr=subprocess.DEVNULL)
        for _, done, _ in monitor(process, progress, 0.02):
            if done >= number * count / (kills + 1):
                process.kill()
        print(
            f"killed after {json.loads(progress.read_text())['lines']:,} lines"
            if process.wait()
            else "finished before the kill"
        )
    subprocess.run([*command, str(out)], check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "bundle", type=Path, nargs="?", help="model of the default task (default: train one)"
    )
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="training time if no bundle is given"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, bundle = Path(folder), options.bundle
        if bundle is None:
            subprocess.run(
                regard("demo", "--minutes", options.minutes, "--out", home / "demo"), check=True
            )
            bundle = home / "demo/bundle"
        checks = cold(bundle, home, options.beam) + search_rates(bundle, options.beam)
        checks += long(bundle, home, options.lines, options.beam, options.kills)
    report("predicting", checks)


if __name__ == "__main__":
    main()
