"""Quality: trains on public data sets, evaluates their test sets and prints the published figures.

    python benchmarks/quality.py --data DIR cmudict --auto --ensemble --parallel 3 --keep
    python benchmarks/quality.py --data DIR cmudict names-ru --auto --parallel 8 --keep
    python benchmarks/quality.py --join A.json B.json --keep     # merges separate runs
    python benchmarks/quality.py --data DIR multi30k-en-de-tok --dev-only --set model.width=192
 Trains three seeds of the recipe in configs/, in separate processes (`--parallel` at a time).
`--auto` adds what `regard train` does without a recipe, `--ensemble` the ensemble of the seeds,
`--distil` the recipe again on the data and on the outputs of the seeds' models. Choose settings
with `--set` and `--dev-only`, which never reads a test set. `--data` is a folder with the sets as
distributed; docs/quality.md says where to get them and how they are scored.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import Check, command, machine, report
from quality_runs import LENGTHS, Result, Trial, evaluate, outcomes
from quality_sets import READERS, Parts, write
from quality_students import students
from quality_tables import METHODS, checks, table

RESULTS = Path(__file__).parent / "results"


def trials(name: str, options: argparse.Namespace, folder: Path) -> list[Trial]:
    """All trainings of one set."""
    methods = ["recipe"] * (not options.no_recipe) + ["auto"] * options.auto
    chosen = {name: getattr(options, name) for name in LENGTHS}
    common: dict[str, Any] = {
        "parts": folder / "parts",
        "overrides": tuple(options.set),
        "run_length": {name: value for name, value in chosen.items() if value is not None},
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        "dev_only": options.dev_only,
        "command": tuple(command("quality", options)),
    }
    labelled = {"recipe": options.distil, "auto": False}
    return [
        Trial(
            name,
            method,
            seed,
            out=folder / f"{method}-{seed}",
            label_sources=labelled[method],
            **common,
        )
        for method in methods
        for seed in options.seeds
    ]


def queue_order(trial: Trial) -> tuple[bool, int]:
    """Recipes first, set by set; then `auto` by seed, so that an early stop has some of every
    set."""
    return (False, 0) if trial.method == "recipe" else (True, trial.seed)


def ensembles(trained: Sequence[Trial], results: Sequence[Result]) -> list[Result]:
    """The figures of each method's ensemble over its seeds, if there are several."""
    found = []
    for method in dict.fromkeys(trial.method for trial in trained):
        good = {
            result["seed"]: result
            for result in results
            if result["method"] == method and "error" not in result
        }
        members = [trial for trial in trained if trial.method == method and trial.seed in good]
        if len(members) < 2:
            continue
        start = time.perf_counter()
        figures = evaluate([trial.out / "bundle" for trial in members], members[0])
        keys = ("seconds", "trained_seconds")
        seconds = {key: round(sum(one[key] for one in good.values()), 1) for key in keys}
        total = seconds["trained_seconds"] + time.perf_counter() - start
        facts = {
            "set": members[0].name,
            "method": f"{method}, ensemble of {len(members)}",
            "seeds": sorted(good),
            "command": list(members[0].command),
            "parameters": sum(result["parameters"] for result in good.values()),
        }
        found.append({**facts, **seconds, "total_seconds": round(total, 1), **figures})
    return found


def sizes(parts: Parts) -> dict[str, int]:
    """The number of training pairs and of examples in each part."""
    tests = {name: len(test) for name, test in parts.tests.items()}
    return {"train": len(parts.train), "dev": len(parts.dev)} | tests


def keep(
    folder: Path,
    name: str,
    facts: dict[str, Any],
    results: Sequence[Result],
    made: Sequence[Check],
) -> None:
    """Write the results of a set as JSON, each with its command."""
    folder.mkdir(parents=True, exist_ok=True)
    checked = [asdict(check) for check in made]
    document = {
        "benchmark": f"quality-{name}",
        **facts,
        "checks": checked,
        "results": list(results),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (folder / f"quality-{name}.json").write_text(text + "\n", encoding="utf-8")


def join(paths: Sequence[Path]) -> dict[str, tuple[dict[str, Any], list[Result]]]:
    """Facts and results by set from several files; of two results for one seed the later counts."""
    found: dict[str, tuple[dict[str, Any], dict[str, Result]]] = {}
    for path in paths:
        document = json.loads(path.read_text(encoding="utf-8"))
        facts = {key: document[key] for key in ("machine", "examples")}
        name = document["benchmark"].removeprefix("quality-")
        _, results = found.setdefault(name, (facts, {}))
        for one in document["results"]:
            results[f"{one['method']} {one.get('seed', one.get('seeds'))}"] = one
    return {name: (facts, list(results.values())) for name, (facts, results) in found.items()}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=", ".join(READERS))
    add("--data", type=Path, help="folder with the data sets")
    add("--join", type=Path, nargs="+", help="merge stored results instead of training")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3])
    add("--auto", action="store_true", help="also train without a recipe")
    add("--no-recipe", action="store_true", help="skip the recipe")
    add("--ensemble", action="store_true", help="also evaluate the ensemble of the seeds")
    add("--distil", action="store_true", help="also train the recipe on its own models' outputs")
    add(
        "--set", action="append", default=[], metavar="GROUP.NAME=VALUE", help="override the recipe"
    )
    add("--dev-only", action="store_true", help="do not evaluate test sets")
    add("--beam", type=int, help="beam size")
    add("--length-penalty", type=float, help="α of the length penalty")
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--minutes", type=float, help="training time, instead of the recipe's length"
    )
    length.add_argument("--steps", type=int)
    length.add_argument("--epochs", type=float)
    add("--parallel", type=int, default=1, help="number of parallel trainings")
    add("--out", type=Path, help="folder of the runs, to resume them (default: temporary)")
    add("--keep", type=Path, nargs="?", const=RESULTS, help="write quality-NAME.json (results/)")
    options = parser.parse_args(words)
    unknown = [name for name in options.names if name not in READERS]
    if unknown:
        parser.error(f"unknown set {unknown[0]}; choose from {', '.join(READERS)}")
    if not options.join and not (options.names and options.data):
        parser.error("give --data DIR and at least one NAME, or --join FILES")
    if options.keep == RESULTS and (options.set or options.dev_only):
        parser.error("give --keep another folder: a trial must not overwrite the stored results")
    if options.no_recipe and not options.auto:
        parser.error("--no-recipe leaves nothing to train; add --auto")
    return options


def main() -> None:
    """Train or join; print each result, and a table for each complete set."""
    options = arguments()
    if options.join:
        for name, (facts, results) in join(options.join).items():
            report_set(name, facts, results, options)
        return
    with tempfile.TemporaryDirectory() as temporary:
        train(options, options.out or Path(temporary))


def train(options: argparse.Namespace, folder: Path) -> None:
    """Run all trials of all sets in parallel."""
    facts, queued = {}, {}
    for name in dict.fromkeys(options.names):
        parts = READERS[name](options.data)
        write(parts, folder / name / "parts")
        facts[name] = {"machine": machine(), "examples": sizes(parts)}
        queued[name] = trials(name, options, folder / name)
        counts = ", ".join(f"{part} {count:,}" for part, count in sizes(parts).items())
        print(f"{name} on {machine()}: {counts}")
    found: dict[str, list[Result]] = {name: [] for name in queued}

    def follow(result: Result) -> list[Trial]:
        """Store a result; after the last one of the recipe, the students to train."""
        own, every = found[result["set"]], queued[result["set"]]
        own.append(result)
        recipes = [trial for trial in every if trial.method == "recipe"]
        finished = [one for one in own if one["method"] == "recipe"]
        last = result["method"] == "recipe" and len(finished) == len(recipes)
        new = students(recipes, finished) if options.distil and last else []
        every += new
        return new

    queue = sorted((trial for some in queued.values() for trial in some), key=queue_order)
    for result in outcomes(queue, options.parallel, follow):
        name = result["set"]
        print(result_line(result), flush=True)
        if options.keep:
            keep(options.keep, name, facts[name], found[name], [])
        if len(found[name]) == len(queued[name]):
            found[name] += ensembles(queued[name], found[name]) if options.ensemble else []
            report_set(name, facts[name], found[name], options)


def report_set(
    name: str, facts: dict[str, Any], results: list[Result], options: argparse.Namespace
) -> None:
    """Print the table and the checks of a set, and store its results."""

    def order(one: Result) -> tuple[int, bool, Any]:
        return METHODS.index(one["method"].split(",")[0]), "seeds" in one, one.get("seed")

    results = sorted(results, key=order)
    print(f"\n{table(name, results)}")
    details = [result.get("details", {}) for result in results]
    signatures = [one[key] for one in details for key in one if key.endswith("signature")]
    for signature in dict.fromkeys(signatures):
        print(f"signature: {signature}")
    made = checks(name, results, dev_only=options.dev_only)
    if options.keep:
        keep(options.keep, name, facts, results, made)
    report(f"quality-{name}", made, facts["machine"])


def result_line(result: Result) -> str:
    """One line for one result."""
    figures = result.get("figures", {})
    shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    seconds = f"{result.get('total_seconds', 0):g} s"
    run = f"{result['set']}, {result['method']}, seed {result['seed']}"
    return f"{run}: {shown or result['error']} ({seconds})"


if __name__ == "__main__":
    main()
