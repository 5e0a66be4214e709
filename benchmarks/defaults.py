"""Quality of the defaults on data that nobody tuned for: error rates of `regard train FILE`.

    python benchmarks/defaults.py --data DATA --sets g2p-2020 --seeds 3
    python benchmarks/defaults.py --data DATA --sets g2p-2020 --seeds 5 --ensemble

Every group (language, slice) of a set is trained from its files alone, once per seed, and its test
sources are predicted with default options. Figures are means over groups of the sequence error
rate, with their standard deviation over seeds. `--ensemble` predicts with all seeds together, too.
docs/quality.md says where to get the data. With `--out`, the same command resumes.
"""

import argparse
import concurrent.futures
import json
import statistics
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from defaults_sets import SETS, Group, References
from harness import Check, machine, report
from quality_runs import end_with_parent

import regard
from regard.text.tokenizers import nfc
from regard.training.display import LineDisplay

# Word error rates in per cent: (with one model, with an ensemble of five); of accuracies the rest.
TARGETS = {
    "g2p-2020": (15.5, 13.8),
    "inflection-2017-low": (60.0, None),
    "inflection-2017-medium": (22.0, None),
}
PUBLISHED = {  # the best of the shared tasks: Gorman et al. 2020; Cotterell et al. 2017
    "g2p-2020": 13.8,
    "inflection-2017-low": 49.4,
    "inflection-2017-medium": 17.2,
}


@dataclass(frozen=True)
class Trial:
    """One group of a set, trained with one seed."""

    group: Group
    seed: int
    out: Path
    threads: int


def attempt(trial: Trial) -> dict[str, Any]:
    """Train with the defaults and predict the test sources; a stored result is read again."""
    import torch

    torch.set_num_threads(trial.threads)
    stored = trial.out / "result.json"
    if stored.exists():
        return json.loads(stored.read_text())
    trial.out.mkdir(parents=True, exist_ok=True)
    group, start = trial.group, time.perf_counter()
    with open(trial.out / "log.txt", "w", encoding="utf-8") as log:
        pipeline = regard.train(
            group.train,
            trial.out / "run",
            held_out=group.dev,
            display=LineDisplay(log),
            seed=trial.seed,
            film=0,
        )
    card = pipeline.bundle.card
    found = {"seconds": round(time.perf_counter() - start, 1), "decisions": card["decisions"]}
    found |= {"parameters": card["parameters"], "steps": card["of"]}
    found |= {"dev": card["metrics"]["sequence_error_rate"]}
    found["error_rate"] = error_rate(pipeline, group.test)
    result = {"set": group.part, "group": group.name, "seed": trial.seed, **found}
    stored.write_text(json.dumps(result, ensure_ascii=False))
    return result


def error_rate(pipeline: regard.Pipeline, test: References) -> float:
    """The share of sources, in per cent, whose output equals no reference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unknown symbols, which are errors as well
        answers = pipeline.many(list(test))
        wrong = [nfc(answer.text) not in test[answer.source] for answer in answers]
    return 100 * statistics.fmean(wrong)


def ensemble(group: Group, folders: list[Path]) -> dict[str, Any]:
    """The error rate of all seeds of a group together."""
    joined = regard.load([folder / "run" for folder in folders], long="allow")
    return {"set": group.part, "group": group.name, "error_rate": error_rate(joined, group.test)}


def main() -> None:
    """Parse options, run all trials and print the table."""
    options = parse_options()
    folder = Path(options.out or tempfile.mkdtemp())
    groups = [
        group
        for name in options.sets
        for group in SETS[name](options.data, folder / "data" / name)
        if not options.groups or group.name in options.groups
    ]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    results, joined = run(groups, seeds, folder, options)
    if options.keep:
        kept = {"machine": machine(), "results": results, "ensembles": joined}
        options.keep.write_text(json.dumps(kept, ensure_ascii=False, indent=1))
    print_table(results, joined)
    report("defaults", [check for name in options.sets for check in checks(name, results, joined)])


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--groups", nargs="*", default=[], help="only these languages or slices")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--ensemble", action="store_true", help="also all seeds together")
    parser.add_argument("--parallel", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a process")
    parser.add_argument("--out", help="folder of the runs, to resume")
    parser.add_argument("--keep", type=Path, help="file for all results")
    return parser.parse_args()


def run(
    groups: list[Group], seeds: range, folder: Path, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All results, and those of ensembles; failures are reported and left out."""
    context = get_context("spawn")
    results, joined = [], []

    def place(group: Group, seed: int) -> Path:
        return folder / group.part / group.name / str(seed)

    with ProcessPoolExecutor(options.parallel, context, end_with_parent) as pool:
        trials = [
            Trial(group, seed, place(group, seed), options.threads)
            for seed in seeds
            for group in groups
        ]
        futures = [pool.submit(attempt, trial) for trial in trials]
        for future in concurrent.futures.as_completed(futures):
            if error := future.exception():
                print(f"failed: {error!r}", file=sys.stderr)
                continue
            results.append(future.result())
            last = results[-1]
            print(f"{len(results)} of {len(trials)}: {last['set']} {last['group']} "
                  f"{last['seed']}: {last['error_rate']:.2f}", file=sys.stderr)  # fmt: skip
        if options.ensemble:
            sides = [(group, [place(group, seed) for seed in seeds]) for group in groups]
            joined = list(pool.map(ensemble, *zip(*sides, strict=True)))
    return results, joined


def mean_by_seed(name: str, results: list[dict[str, Any]]) -> list[float]:
    """The mean error rate over groups, of each seed that has all groups."""
    of_seed: dict[int, list[float]] = {}
    for result in results:
        if result["set"] == name:
            of_seed.setdefault(result["seed"], []).append(result["error_rate"])
    most = max(map(len, of_seed.values()), default=0)
    return [statistics.fmean(rates) for rates in of_seed.values() if len(rates) == most]


def checks(name: str, results: list[dict[str, Any]], joined: list[dict[str, Any]]) -> list[Check]:
    """The figures of one set: the mean over seeds, its spread, and the ensemble."""
    single, together = TARGETS.get(name, (None, None))
    means = mean_by_seed(name, results)
    if not means:
        return []
    value, spread = statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else 0.0
    best = PUBLISHED.get(name)
    found = [
        Check(f"{name}: error rate, one model, {len(means)} seeds", value, best, single,
              single is None or value <= single),
        Check(f"{name}: standard deviation over seeds", spread, None, None, ok=True),
    ]  # fmt: skip
    rates = [one["error_rate"] for one in joined if one["set"] == name]
    if rates:
        mean = statistics.fmean(rates)
        label = f"{name}: error rate, ensemble of {len(means)}"
        found.append(Check(label, mean, best, together, together is None or mean <= together))
    return found


def print_table(results: list[dict[str, Any]], joined: list[dict[str, Any]]) -> None:
    """The error rate of every group."""
    ensembles = {(one["set"], one["group"]): one["error_rate"] for one in joined}
    names = dict.fromkeys((one["set"], one["group"]) for one in results)
    print(
        "| set | group | error rate | ensemble | parameters | seconds |\n|---|---|---|---|---|---|"
    )
    for name in sorted(names):
        some = [one for one in results if (one["set"], one["group"]) == name]
        rates = [one["error_rate"] for one in some]
        spread = f" ± {statistics.stdev(rates):.2f}" if len(rates) > 1 else ""
        both = f"{ensembles[name]:.2f}" if name in ensembles else ""
        seconds = statistics.fmean(one["seconds"] for one in some)
        print(f"| {name[0]} | {name[1]} | {statistics.fmean(rates):.2f}{spread} | {both} | "
              f"{some[0]['parameters']:,} | {seconds:.0f} |")  # fmt: skip


if __name__ == "__main__":
    main()
