"""Quality: trains on public data sets, answers their test sets once, and compares with what was published.

    python benchmarks/quality.py --data DIR cmudict --auto --ensemble --parallel 3 --keep
    python benchmarks/quality.py --data DIR cmudict names-ru --auto --parallel 8 --keep      # several sets at once
    python benchmarks/quality.py --join A.json B.json --keep                                 # runs apart, as one
    python benchmarks/quality.py --data DIR multi30k-en-de-tok --dev-only --set model.width=192

Three seeds by the recipe in configs/, in processes of their own (`--parallel`: so many share the machine); with
`--auto` beside it what `regard train` does without any recipe; with `--ensemble` the seeds' models together; with
`--distil` the recipe again on the data and on what the seeds' models answered to it. Settings are searched with `--set`
and `--dev-only`, which never asks a test set. `--data` is a folder with the sets as they are distributed:
docs/quality.md says where to get them, and how they are scored.
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
from quality_runs import ENDS, Result, Trial, measured, outcomes
from quality_sets import READERS, Parts, write
from quality_students import students
from quality_tables import WAYS, checks, table

RESULTS = Path(__file__).parent / "results"


def trials(name: str, options: argparse.Namespace, folder: Path) -> list[Trial]:
    """All that is to be trained of one set."""
    ways = ["recipe"] * (not options.no_recipe) + ["auto"] * options.auto
    ends = {name: getattr(options, name) for name in ENDS if getattr(options, name) is not None}
    common: dict[str, Any] = {
        "parts": folder / "parts",
        "overrides": tuple(options.set),
        "ends": ends,
        "beam": options.beam,
        "length": options.length,
        "dev_only": options.dev_only,
        "command": tuple(command("quality", options)),
    }
    taught = {"recipe": options.distil, "auto": False}
    return [
        Trial(name, way, seed, out=folder / f"{way}-{seed}", teach=taught[way], **common)
        for way in ways
        for seed in options.seeds
    ]


def in_turn(trial: Trial) -> tuple[bool, int]:
    """Recipes first, set by set; then `auto`, seed by seed: an early end leaves something of every set."""
    return (False, 0) if trial.way == "recipe" else (True, trial.seed)


def together(asked: Sequence[Trial], results: Sequence[Result]) -> list[Result]:
    """The ensemble of each way's seeds, where there are several."""
    found = []
    for way in dict.fromkeys(trial.way for trial in asked):
        good = {result["seed"]: result for result in results if result["way"] == way and "error" not in result}
        members = [trial for trial in asked if trial.way == way and trial.seed in good]
        if len(members) > 1:
            start = time.perf_counter()
            figures = measured([trial.out / "bundle" for trial in members], members[0])
            seconds = {key: round(sum(one[key] for one in good.values()), 1) for key in ("seconds", "trained_seconds")}
            parameters = sum(result["parameters"] for result in good.values())
            whole = seconds["trained_seconds"] + time.perf_counter() - start
            facts = {"set": members[0].name, "way": f"{way}, {len(members)} together", "seeds": sorted(good)}
            facts["command"] = list(members[0].command)
            found.append({**facts, "parameters": parameters, **seconds, "whole_seconds": round(whole, 1), **figures})
    return found


def sizes(parts: Parts) -> dict[str, int]:
    """How many pairs and questions there are."""
    return {"train": len(parts.train), "dev": len(parts.dev)} | {name: len(test) for name, test in parts.tests.items()}


def keep(folder: Path, name: str, facts: dict[str, Any], results: Sequence[Result], made: Sequence[Check]) -> None:
    """A set's results as JSON; each has the command that made it."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": f"quality-{name}", **facts, "checks": [asdict(check) for check in made]}
    text = json.dumps({**document, "results": list(results)}, indent=1, ensure_ascii=False)
    (folder / f"quality-{name}.json").write_text(text + "\n", encoding="utf-8")


def joined(paths: Sequence[Path]) -> dict[str, tuple[dict[str, Any], list[Result]]]:
    """What was kept of runs apart: by set its facts and all results; of two for the same seed the later counts."""
    found: dict[str, tuple[dict[str, Any], dict[str, Result]]] = {}
    for path in paths:
        document = json.loads(path.read_text(encoding="utf-8"))
        facts = {key: document[key] for key in ("machine", "questions")}
        _, results = found.setdefault(document["benchmark"].removeprefix("quality-"), (facts, {}))
        results |= {f"{one['way']} {one.get('seed', one.get('seeds'))}": one for one in document["results"]}
    return {name: (facts, list(results.values())) for name, (facts, results) in found.items()}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What may be chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(READERS))
    parser.add_argument("--data", type=Path, help="folder that holds the data sets")
    parser.add_argument("--join", type=Path, nargs="+", help="train nothing: put together what was kept of runs apart")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--auto", action="store_true", help="train without a recipe too")
    parser.add_argument("--no-recipe", action="store_true", help="leave the recipe out")
    parser.add_argument("--ensemble", action="store_true", help="measure the seeds' models together too")
    parser.add_argument("--distil", action="store_true", help="train the recipe again on its own models' answers too")
    parser.add_argument("--set", action="append", default=[], metavar="GROUP.NAME=VALUE", help="over the recipe")
    parser.add_argument("--dev-only", action="store_true", help="leave the test sets alone")
    parser.add_argument("--beam", type=int, help="width of the search")
    parser.add_argument("--length", type=float, help="α of the length penalty")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, help="training time of each, instead of the recipe's length")
    length.add_argument("--steps", type=int)
    length.add_argument("--epochs", type=float)
    parser.add_argument("--parallel", type=int, default=1, help="trainings side by side")
    parser.add_argument("--out", type=Path, help="keep the runs here; the same command goes on (default: nowhere)")
    parser.add_argument(
        "--keep", type=Path, nargs="?", const=RESULTS, help=f"write quality-NAME.json ({RESULTS.name}/)"
    )
    options = parser.parse_args(words)
    unknown = [name for name in options.names if name not in READERS]
    if unknown:
        parser.error(f"unknown set {unknown[0]}; choose from {', '.join(READERS)}")
    if not options.join and not (options.names and options.data):
        parser.error("give --data DIR and at least one NAME, or --join FILES")
    if options.keep == RESULTS and (options.set or options.dev_only):
        parser.error("give --keep a folder of its own: what is only tried must not go over what is kept")
    if options.no_recipe and not options.auto:
        parser.error("--no-recipe leaves nothing to train; add --auto")
    return options


def main() -> None:
    """Train or join; each result as it comes, and a table for each set when its last has come."""
    options = arguments()
    if options.join:
        for name, (facts, results) in joined(options.join).items():
            told(name, facts, results, options)
        return
    with tempfile.TemporaryDirectory() as nowhere:
        trained(options, options.out or Path(nowhere))


def trained(options: argparse.Namespace, folder: Path) -> None:
    """All trials of all sets, side by side."""
    facts, asked = {}, {}
    for name in dict.fromkeys(options.names):
        parts = READERS[name](options.data)
        write(parts, folder / name / "parts")
        facts[name] = {"machine": machine(), "questions": sizes(parts)}
        asked[name] = trials(name, options, folder / name)
        print(f"{name} on {machine()}: {', '.join(f'{part} {count:,}' for part, count in sizes(parts).items())}")
    found: dict[str, list[Result]] = {name: [] for name in asked}

    def follow(result: Result) -> list[Trial]:
        """Write the result down; with the recipe's last one come its students."""
        own, every = found[result["set"]], asked[result["set"]]
        own.append(result)
        recipes = [trial for trial in every if trial.way == "recipe"]
        last = result["way"] == "recipe" and sum(one["way"] == "recipe" for one in own) == len(recipes)
        new = students(recipes, [one for one in own if one["way"] == "recipe"]) if options.distil and last else []
        every += new
        return new

    queue = sorted((trial for some in asked.values() for trial in some), key=in_turn)
    for result in outcomes(queue, options.parallel, follow):
        name = result["set"]
        print(_told(result), flush=True)
        if options.keep:
            keep(options.keep, name, facts[name], found[name], [])
        if len(found[name]) == len(asked[name]):
            found[name] += together(asked[name], found[name]) if options.ensemble else []
            told(name, facts[name], found[name], options)


def told(name: str, facts: dict[str, Any], results: list[Result], options: argparse.Namespace) -> None:
    """What there is to say of a set, and to keep."""
    results = sorted(results, key=lambda one: (WAYS.index(one["way"].split(",")[0]), "seeds" in one, one.get("seed")))
    print(f"\n{table(name, results)}")
    beside = [result.get("beside", {}) for result in results]
    for signature in dict.fromkeys(one[key] for one in beside for key in one if key.endswith("signature")):
        print(f"signature: {signature}")
    made = checks(name, results, dev_only=options.dev_only)
    if options.keep:
        keep(options.keep, name, facts, results, made)
    report(f"quality-{name}", made, facts["machine"])


def _told(result: Result) -> str:
    """A line for one result."""
    found = result.get("figures", {})
    told = ", ".join(f"{name} {value:.4g}" for name, value in found.items()) or result["error"]
    return f"{result['set']}, {result['way']}, seed {result['seed']}: {told} ({result.get('whole_seconds', 0):g} s)"


if __name__ == "__main__":
    main()
