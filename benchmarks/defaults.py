"""Quality of the defaults on data that nobody tuned for: error rates of `regard train FILE`.

    python benchmarks/defaults.py --data DATA --sets g2p-2020 --seeds 3
    python benchmarks/defaults.py --data DATA --sets g2p-2020 --seeds 5 --ensemble
    python benchmarks/defaults.py --join a.json b.json --keep both.json

Every group (language, slice) of a set is trained from its files alone, once per seed, and its test
sources are predicted with default options. Figures are means over groups of the sequence error
rate (of running text, 100 − BLEU), with their standard deviation over seeds. `--ensemble` predicts
with all seeds together, too: as in `regard train --seeds`, half of them generate targets from their
end.
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
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from defaults_sets import SETS, Group, References
from defaults_tables import Result, all_checks, print_table
from harness import join_kept, keep, machine, machines, report
from quality_runs import end_with_parent
from quality_scores import bleu
from quality_sets import Example

import regard
from regard.answer import Answer
from regard.quality import measure_confidence
from regard.seeds import target_orders
from regard.text.tokenizers import nfc
from regard.training.display import LineDisplay

Results = tuple[list[Result], list[Result]]  # of single models, and of ensembles


@dataclass(frozen=True)
class Trial:
    """One group of a set, trained with one seed."""

    group: Group
    seed: int
    out: Path
    threads: int
    order: str = "forward"  # of targets; that of a model of `regard train --seeds`


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
            target_order=trial.order,
            **group.settings,
        )
    card = pipeline.bundle.card
    found: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 1)}
    folder = f"{group.train.parent}/"
    found["decisions"] = [line.replace(folder, "") for line in card["decisions"]]
    found |= {"parameters": card["parameters"], "steps": card["of"]}
    found |= {"dev": dev_error(card["metrics"]), "pairs": card["pairs"]}
    found |= {"baselines": card["baselines"], "history": history(trial.out / "run")}
    answers = predict(pipeline, group.test)
    found |= {"error_rate": error_rate(answers, group)}
    found |= {"calibration": calibration(pipeline, answers, group.test)}
    found |= {"order": trial.order, "given": group.settings}
    result = {"set": group.part, "group": group.name, "seed": trial.seed, **found}
    stored.write_text(json.dumps(result, ensure_ascii=False))
    return result


def predict(pipeline: regard.Pipeline, test: References) -> list[Answer]:
    """The answers of the default search."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unknown symbols, which are errors as well
        return list(pipeline.many(list(test)))


def error_rate(answers: list[Answer], group: Group) -> float:
    """The share of sources, in per cent, whose output equals no reference; of several languages the
    mean. Of running text, 100 − BLEU."""
    if group.text:
        examples = [Example(source, sorted(some)) for source, some in group.test.items()]
        return 100 - bleu([[one.text] for one in answers], examples, tokenize="13a")["bleu"]
    wrong: dict[str, list[bool]] = {}
    for one in answers:
        language = one.source.split(" ")[0] if group.tagged else ""
        wrong.setdefault(language, []).append(nfc(one.text) not in group.test[one.source])
    return 100 * statistics.fmean(map(statistics.fmean, wrong.values()))


def calibration(
    pipeline: regard.Pipeline, answers: list[Answer], test: References
) -> dict[str, float]:
    """The expected calibration error of probabilities, of confidences, and of exact ones."""
    references = {source: sorted(some) for source, some in test.items()}
    found = measure_confidence(pipeline, references, answers)
    return {key: found[key] for key in ("before", "after", "floor") if key in found}


def dev_error(metrics: dict[str, Any]) -> float:
    """The sequence error rate on dev; of running text, 100 − chrF."""
    rate = metrics.get("sequence_error_rate")
    return float(100 - metrics["chrf"] if rate is None else rate)


def history(run: Path) -> list[dict[str, float]]:
    """Step, seconds since the start and error rate of every evaluation of a run."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    begun = next(datetime.fromisoformat(one["time"]) for one in events if one["event"] == "started")
    return [
        {
            "step": one["step"],
            "seconds": (datetime.fromisoformat(one["time"]) - begun).total_seconds(),
            "error_rate": dev_error(one["metrics"]),
        }
        for one in events
        if one["event"] == "evaluated"
    ]


def ensemble(group: Group, folders: list[Path]) -> dict[str, Any]:
    """The error rate of all seeds of a group together."""
    joined = regard.load([folder / "run" for folder in folders], long="allow")
    return {
        "set": group.part,
        "group": group.name,
        "error_rate": error_rate(predict(joined, group.test), group),
    }


def main() -> None:
    """Parse options, run all trials and print the table."""
    options = parse_options()
    if options.join:
        results, joined, on = read_kept(options.join, options.sets)
    else:
        results, joined, on = *train_all(options), machine()
    if not results:
        sys.exit("no results")
    if options.keep:
        checks = all_checks(results, joined)
        keep(options.keep, "defaults", checks, on, results=results, ensembles=joined)
    print_table(results, joined)
    report("defaults", all_checks(results, joined), on)


def train_all(options: argparse.Namespace) -> Results:
    """Train all groups with all seeds."""
    folder = Path(options.out or tempfile.mkdtemp())
    groups = [
        group
        for name in options.sets
        for group in SETS[name](options.data, folder / "data" / name)
        if not options.groups or group.name in options.groups
    ]
    given = dict(one.split("=", 1) for one in options.set)
    settings = {name: json.loads(value) for name, value in given.items()}
    groups = [replace(one, settings={**one.settings, **settings}) for one in groups]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    return run(groups, seeds, folder, options)


def read_kept(paths: list[Path], sets: list[str]) -> tuple[list[Result], list[Result], str]:
    """The results of some sets in several files, those of ensembles, and their machines."""
    results = [one for one in join_kept(paths, ("set", "group", "seed")) if one["set"] in sets]
    ensembles = [one for path in paths for one in json.loads(path.read_text())["ensembles"]]
    joined = {(one["set"], one["group"]): one for one in ensembles if one["set"] in sets}
    return results, list(joined.values()), machines(results)


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--join", nargs="+", type=Path, help="kept results instead of trainings")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--groups", nargs="*", default=[], help="only these languages or slices")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON",
                        help="settings in place of the defaults")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--ensemble", action="store_true", help="also all seeds together")
    parser.add_argument("--parallel", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a process")
    parser.add_argument("--out", help="folder of the runs, to resume")
    parser.add_argument("--keep", type=Path, help="file for all results")
    options = parser.parse_args()
    if not options.join and options.data is None:
        parser.error("give --data DATA, or --join FILES")
    return options


def run(groups: list[Group], seeds: range, folder: Path, options: argparse.Namespace) -> Results:
    """All results, and those of ensembles; failures are reported and left out."""
    context = get_context("spawn")
    results, joined = [], []

    def place(group: Group, seed: int) -> Path:
        return folder / group.part / group.name / str(seed)

    orders = target_orders(len(seeds)) if options.ensemble else ["forward"] * len(seeds)
    with ProcessPoolExecutor(options.parallel, context, end_with_parent) as pool:
        trials = [
            Trial(group, seed, place(group, seed), options.threads, order)
            for seed, order in zip(seeds, orders, strict=True)
            for group in groups
        ]
        for last in finished([pool.submit(attempt, trial) for trial in trials]):
            results.append(last)
            print(f"{len(results)} of {len(trials)}: {last['set']} {last['group']} "
                  f"{last['seed']}: {last['error_rate']:.2f}", file=sys.stderr)  # fmt: skip
        if options.ensemble:
            sides = [(group, [place(group, seed) for seed in seeds]) for group in groups]
            joined = list(finished([pool.submit(ensemble, *side) for side in sides]))
    return results, joined


def finished(futures: list[Future[Result]]) -> Iterator[Result]:
    """Each result as it is ready; failures are reported and left out."""
    for future in concurrent.futures.as_completed(futures):
        if error := future.exception():
            print(f"failed: {error!r}", file=sys.stderr)
        else:
            yield future.result()


if __name__ == "__main__":
    main()
