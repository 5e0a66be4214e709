"""Ensembles whose models generate targets in one direction against those of both, on dev.

    python benchmarks/defaults.py --data DATA --sets g2p-2020 --seeds 5 --ensemble --out OUT
    python benchmarks/directions.py --data DATA --sets g2p-2020 --out OUT

Reads the models that benchmarks/defaults.py trained, of which the last generate targets reversed,
and compares all ensembles of two (and of three) forward models with all that have one or more
reversed ones in their place. Test sources are not read.
"""

import argparse
import itertools
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from defaults import error_rate, finished, predict
from defaults_sets import SETS, Group
from defaults_tables import dev_checks, report_on_dev
from quality_runs import end_with_parent

import regard

Result = dict[str, Any]


def compare(group: Group, folder: Path, threads: int, largest: int) -> Result:
    """The mean dev error rate of single models and of all ensembles, by their kind."""
    import torch

    torch.set_num_threads(threads)
    on_dev = group.on_dev()
    orders = {}
    for path in sorted(folder.glob("*/result.json")):
        orders[path.parent / "run"] = json.loads(path.read_text())["order"] == "reversed"
    rates: dict[str, list[float]] = {}
    for count in range(1, largest + 1):
        for some in itertools.combinations(orders, count):
            joined = regard.load(list(some), long="allow")
            kind = f"{count}, {sum(orders[one] for one in some)} reversed"
            rates.setdefault(kind, []).append(error_rate(predict(joined, on_dev.test), on_dev))
    means = {kind: statistics.fmean(found) for kind, found in sorted(rates.items())}
    return {"set": group.part, "group": group.name, "rates": means}


def rivals(results: list[Result]) -> dict[str, str]:
    """For each ensemble of both directions, the one of as many forward models."""
    found = {}
    for kind in {kind for one in results for kind in one["rates"]}:
        count, backward = kind.removesuffix(" reversed").split(", ")
        if backward not in ("0", count):
            found[kind] = f"{count}, 0 reversed"
    return found


def main() -> None:
    """Parse options, compare, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of defaults.py --out")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["g2p-2020"])
    parser.add_argument("--largest", type=int, default=3, help="size of the largest ensembles")
    parser.add_argument("--parallel", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a process")
    parser.add_argument("--keep", type=Path, help="file for all results")
    options = parser.parse_args()
    groups = [
        (group, options.out / group.part / group.name, options.threads, options.largest)
        for name in options.sets
        for group in SETS[name](options.data, options.out / "data" / name)
        if (options.out / group.part / group.name).is_dir()
    ]
    with ProcessPoolExecutor(options.parallel, get_context("spawn"), end_with_parent) as pool:
        results = list(finished([pool.submit(compare, *one) for one in groups]))
    found = dev_checks(results, rivals(results), "ensemble of ")
    report_on_dev("directions", results, found, options.keep)


if __name__ == "__main__":
    main()
