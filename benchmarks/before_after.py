"""Speed of two source checkouts on one machine: decoding, training and prediction in one table.

    python benchmarks/before_after.py --before ../regard-before --after .
    python benchmarks/before_after.py --before ../regard-before --after . --rounds 5 --full
    python benchmarks/before_after.py --before ../regard-before --after . --quick   # a short trial

Each checkout runs its own benchmarks/decoding.py, training.py and predicting.py, in separate
processes with PYTHONPATH set to its `src`. The two alternate, and the order changes in every round,
so that a busy machine affects both. The table has the medians of all rounds and their ratio: above
1, the second checkout is faster. Only speeds and times that both report are compared.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from harness import Check, machine, report

TARGET = 0.95  # a ratio below this is a loss of speed
FASTER = ("tokens/s", "words/s", "lines/s", "over HF", "over HF Marian", "over nn.Transformer")
SHORTER = (", s",)  # check names that end so are times
Values = dict[str, list[float]]


def commands(options: argparse.Namespace) -> dict[str, list[str]]:
    """The arguments of each benchmark; these options exist in old and new checkouts."""
    if options.full:
        return {"decoding": [], "training": [], "predicting": []}
    if options.quick:
        return {
            "decoding": ["--only", "small", "--quick", "--minutes", "0.1"],
            "training": ["--width", "32", "--steps", "8", "--dropout", "0.1"],
            "predicting": ["spelling", "--lines", "4000", "--kills", "0"],
        }
    return {
        "decoding": ["--only", "small", "--minutes", "0.5"],
        "training": ["--steps", "80"],
        "predicting": ["spelling", "--lines", "20000", "--kills", "0"],
    }


def measure(checkout: Path, benchmark: str, arguments: list[str]) -> dict[str, float]:
    """Run one benchmark of a checkout; the value of each check in its last line."""
    script = checkout / "benchmarks" / f"{benchmark}.py"
    path = os.pathsep.join([str(checkout / "src"), *os.environ.get("PYTHONPATH", "").split()])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{script} failed with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    checks = json.loads(done.stdout.splitlines()[-1])["checks"]
    return {" ".join(check["name"].split()): check["value"] for check in checks}


def is_time(name: str) -> bool:
    """Whether a check is a time, of which less is better."""
    return name.endswith(SHORTER)


def is_speed(name: str) -> bool:
    """Whether a check is a speed or a speed ratio."""
    return name.endswith(FASTER)


def ratio(name: str, before: list[float], after: list[float]) -> float:
    """How many times as fast the second checkout is, by the medians."""
    first, second = statistics.median(before), statistics.median(after)
    return first / second if is_time(name) else second / first


def compare(benchmark: str, arguments: list[str], options: argparse.Namespace) -> list[Check]:
    """Run one benchmark in both checkouts, alternating; print its rows of the table."""
    sides = {"before": options.before.resolve(), "after": options.after.resolve()}
    values: dict[str, Values] = {side: defaultdict(list) for side in sides}
    for number in range(options.rounds):
        for side in sorted(sides, reverse=number % 2 == 0):  # "before" first in even rounds
            for name, value in measure(sides[side], benchmark, arguments).items():
                values[side][name].append(value)
    checks = []
    for name in (name for name in values["before"] if name in values["after"]):
        if not (is_time(name) or is_speed(name)):
            continue
        before, after = values["before"][name], values["after"][name]
        found = ratio(name, before, after)
        label = f"{benchmark}: {name}"
        medians = f"{statistics.median(before):>12,.2f} {statistics.median(after):>12,.2f}"
        print(f"{label:58} {medians} {found:>7.3f}", flush=True)
        checks.append(Check(f"{label}, ratio", found, None, TARGET, found >= TARGET))
    return checks


def commit(checkout: Path) -> str:
    """The commit of a checkout, or its folder if it is not a git repository."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or checkout.resolve().name


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--before", type=Path, required=True, help="source checkout to compare with"
    )
    parser.add_argument("--after", type=Path, required=True, help="source checkout to measure")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each benchmark per checkout")
    parser.add_argument("--only", nargs="+", choices=("decoding", "training", "predicting"))
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="very short runs, as a trial")
    length.add_argument("--full", action="store_true", help="the benchmarks' default options")
    return parser.parse_args()


def main() -> None:
    """Measure both checkouts and report the ratios."""
    options = arguments()
    versions = f"before {commit(options.before)}, after {commit(options.after)}"
    print(f"{machine()}: {versions}, {options.rounds} rounds\n")
    print(f"{'':58} {'before':>12} {'after':>12} {'ratio':>7}", flush=True)
    checks: list[Check] = []
    for benchmark, words in commands(options).items():
        if not options.only or benchmark in options.only:
            checks += compare(benchmark, words, options)
    report("before_after", checks)


if __name__ == "__main__":
    main()
