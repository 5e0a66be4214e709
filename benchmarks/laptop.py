"""Quality of the defaults after some minutes on a CPU: `regard train FILE --minutes M`.

    python benchmarks/laptop.py --data DATA --minutes 10 30 60 --seeds 3 --keep RESULTS
    python benchmarks/laptop.py --join a.json b.json --keep RESULTS

Every run is a process of its own with all cores of this machine; reading the data, training and
saving count, predicting the test set does not. The share of the cores that a run got is reported:
below 100 % other processes were busy, and the quality is a lower bound of that of an idle machine.
docs/quality.md says where to get the data. With `--out`, the same command resumes.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import Check, join_kept, keep, machine, machines, report
from quality_scores import among, bleu, phones
from quality_sets import READERS, Parts, write_pairs

import regard

SETS = {"dictionary": "cmudict", "names": "names-ru", "multi30k": "multi30k-en-de-raw"}
TARGETS = {("dictionary", 10): 30.0, ("dictionary", 30): 26.5, ("dictionary", 60): 24.5}
KEY = ("set", "minutes", "seed")  # what tells results apart
FIGURES = {"dictionary": "word error rate", "names": "word error rate", "multi30k": "BLEU"}


def prepare(name: str, data: Path, folder: Path) -> tuple[Parts, Path, Path]:
    """The files of a set."""
    parts = READERS[SETS[name]](data)
    folder.mkdir(parents=True, exist_ok=True)
    train, dev = folder / "train.tsv", folder / "dev.tsv"
    write_pairs(train, parts.train)
    write_pairs(dev, [(one.source, target) for one in parts.dev for target in one.references])
    return parts, train, dev


def run(name: str, minutes: float, seed: int, data: Path, folder: Path) -> dict[str, Any]:
    """Train once and score the first test set; a stored result is read again."""
    stored = folder / f"{name}-{minutes:g}-{seed}.json"
    if stored.exists():
        return json.loads(stored.read_text())
    parts, train, dev = prepare(name, data, folder / name)
    out = folder / f"{name}-{minutes:g}-{seed}"
    command = [sys.executable, "-m", "regard", "train", str(train), "--held-out", str(dev)]
    command += ["--minutes", f"{minutes:g}", "--set", f"train.seed={seed}", "--out", str(out)]
    before, start = _children(), time.perf_counter()
    with open(folder / f"{out.name}.log", "w", encoding="utf-8") as log:
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    seconds = time.perf_counter() - start
    share = 100 * (_children() - before) / (seconds * len(os.sched_getaffinity(0)))
    pipeline = regard.load(out)
    tests = next(iter(parts.tests.values()))
    outputs = [[answer.text] for answer in pipeline.many([one.source for one in tests])]
    card = pipeline.bundle.card
    result = {"set": name, "minutes": minutes, "seed": seed, "value": score(name, outputs, tests)}
    result |= {"seconds": round(seconds, 1), "core_share": round(share, 1), "steps": card["of"]}
    result |= {"parameters": card["parameters"], "machine": machine()}
    stored.write_text(json.dumps(result, ensure_ascii=False))
    return result


def score(name: str, outputs: list[list[str]], tests: Any) -> float:
    """The figure of a set, in per cent."""
    if name == "multi30k":
        return bleu(outputs, tests, tokenize="13a")["bleu"]
    if name == "names":
        return 100 * (1 - among(outputs, tests, counts=(1,))["1-best"])
    return phones(outputs, tests)["wer"]


def _children() -> float:
    """CPU seconds of finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Parse options, train, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--join", nargs="+", type=Path, help="kept results instead of trainings")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["dictionary"])
    parser.add_argument("--minutes", nargs="+", type=float, default=[10.0, 30.0, 60.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder of the runs, to resume")
    parser.add_argument("--keep", type=Path, help="file for all results")
    options = parser.parse_args()
    if not options.join and options.data is None:
        parser.error("give --data DATA, or --join FILES")
    results = join_kept(options.join, KEY) if options.join else train_all(options)
    results.sort(key=lambda one: tuple(one[name] for name in KEY))
    on = machines(results)
    if options.keep:
        keep(options.keep, "laptop", checks(results), on, results=results)
    print_table(results)
    report("laptop", checks(results), on)


def train_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train all sets for all minutes with all seeds; `--keep` has the results so far."""
    folder = options.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for minutes in options.minutes:
        for name in options.sets:
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                results.append(run(name, minutes, seed, options.data, folder))
                print(json.dumps(results[-1], ensure_ascii=False), file=sys.stderr)
                if options.keep:
                    keep(options.keep, "laptop", checks(results), machine(), results=results)
    return results


def print_table(results: list[dict[str, Any]]) -> None:
    """Every run."""
    print("| set | minutes | seed | figure | value | real minutes | share of cores | parameters "
          "| machine |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for one in results:
        print(f"| {one['set']} | {one['minutes']:g} | {one['seed']} | {FIGURES[one['set']]} | "
              f"{one['value']:.2f} | {one['seconds'] / 60:.1f} | {one['core_share']:.0f} % | "
              f"{one['parameters']:,} | {one['machine']} |")  # fmt: skip


def checks(results: list[dict[str, Any]]) -> list[Check]:
    """The mean of each set and time, and its spread over seeds."""
    found = []
    for key in dict.fromkeys((one["set"], one["minutes"]) for one in results):
        values = [one["value"] for one in results if (one["set"], one["minutes"]) == key]
        mean, target = statistics.fmean(values), TARGETS.get(key)
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        label = f"{key[0]}: {FIGURES[key[0]]} after {key[1]:g} minutes, {len(values)} seeds"
        found.append(Check(label, mean, None, target, target is None or mean <= target))
        found.append(Check(f"{label}: standard deviation", spread, None, None, ok=True))
    return found


if __name__ == "__main__":
    main()
