"""Speed of two source checkouts on one machine: decoding, training and prediction in one table.

    python benchmarks/before_after.py --before ../regard-before --after .
    python benchmarks/before_after.py --before ../regard-before --after . --rounds 60

Each checkout runs in a process of its own, with its `src` and `benchmarks` on the path
(before_after_worker.py). The two take turns of a third of a second, in changing order, so that a
busy machine affects both. The table has the medians of all turns and the median of the ratios of
neighbouring turns: above 1, the second checkout is faster.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from harness import Check, machine, report

TARGET = 0.95  # a ratio below this is a loss of speed


class Worker:
    """The process of one checkout."""

    def __init__(self, checkout: Path, threads: int) -> None:
        folders = [checkout / "src", checkout / "benchmarks", os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
        script = Path(__file__).with_name("before_after_worker.py").read_text(encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(threads)],
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.cases = list(iter(self._read, ""))
        if not self.cases:
            sys.exit(f"{checkout}: the benchmarks of this checkout do not run")

    def speed(self, case: str) -> float:
        """The speed of one turn."""
        assert self.process.stdin is not None
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")


def compare(case: str, sides: list[Worker], rounds: int) -> Check:
    """Measure one case in both checkouts, taking turns; print its row."""
    for side in sides:
        side.speed(case)  # warm-up
    found: list[list[float]] = [[], []]
    for number in range(rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            found[index].append(sides[index].speed(case))
    ratio = statistics.median(after / before for before, after in zip(*found, strict=True))
    before, after = map(statistics.median, found)
    print(f"{case:48} {before:>12,.0f} {after:>12,.0f} {ratio:>7.3f}", flush=True)
    return Check(f"{case}, after / before", ratio, None, TARGET, ratio >= TARGET)


def commit(checkout: Path) -> str:
    """The commit of a checkout, or its folder if it is not a git repository."""
    if not (checkout / ".git").exists():
        return checkout.resolve().name
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measure both checkouts and report the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="checkout to compare with")
    parser.add_argument("--after", type=Path, required=True, help="checkout to measure")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each checkout per case")
    parser.add_argument("--threads", type=int, default=2, help="number of threads")
    options = parser.parse_args()
    versions = f"before {commit(options.before)}, after {commit(options.after)}"
    print(f"{machine()}: {versions}, {options.rounds} rounds\n")
    sides = [Worker(one.resolve(), options.threads) for one in (options.before, options.after)]
    print(f"{'':48} {'before':>12} {'after':>12} {'ratio':>7}", flush=True)
    report("before_after", [compare(case, sides, options.rounds) for case in sides[0].cases])


if __name__ == "__main__":
    main()
