"""Quality: trains on a public data set, answers its test set once, and compares with what was published.

    python benchmarks/quality.py --data DIR cmudict --auto --ensemble --parallel 3 --keep
    python benchmarks/quality.py --data DIR multi30k-en-de-tok --dev-only --set model.width=192 --set train.rate=0.003

Three seeds by the recipe in configs/, each in a process of its own (`--parallel`: so many share the machine); with
`--auto` beside it what `regard train` does without any recipe; with `--ensemble` the seeds' models together. Settings
are searched with `--set` and `--dev-only`, which never opens a test set. `--data` is a folder with the sets as they are
distributed; the head of each recipe says where to get them. docs/quality.md has the conventions.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import Check, machine, report
from quality_runs import ENDS, Result, Trial, measured, outcomes
from quality_scores import CONVENTIONS, better, limit
from quality_sets import READERS, Parts, write

RESULTS = Path(__file__).parent / "results"
NEAR = 5.0  # per cent that `auto` may stand behind the recipe
HIDDEN = ("chrf",)  # kept, but not in the table


def trials(options: argparse.Namespace, folder: Path) -> list[Trial]:
    """All that is to be trained."""
    ways = ["recipe"] * (not options.no_recipe) + ["auto"] * options.auto
    ends = {name: getattr(options, name) for name in ENDS if getattr(options, name) is not None}
    common: dict[str, Any] = {
        "parts": folder / "parts",
        "overrides": tuple(options.set),
        "ends": ends,
        "beam": options.beam,
        "length": options.length,
        "dev_only": options.dev_only,
        "command": tuple(command(options)),
    }
    seeds = [(way, seed) for way in ways for seed in options.seeds]
    return [Trial(options.name, way, seed, out=folder / f"{way}-{seed}", **common) for way, seed in seeds]


def together(options: argparse.Namespace, asked: Sequence[Trial], results: Sequence[Result]) -> list[Result]:
    """The ensemble of each way's seeds, where there are several."""
    found = []
    for way in dict.fromkeys(trial.way for trial in asked if options.ensemble):
        good = {result["seed"]: result for result in results if result["way"] == way and "error" not in result}
        members = [trial for trial in asked if trial.way == way and trial.seed in good]
        if len(members) > 1:
            start = time.perf_counter()
            figures = measured([trial.out / "bundle" for trial in members], members[0])
            seconds = {key: round(sum(one[key] for one in good.values()), 1) for key in ("seconds", "trained_seconds")}
            parameters = sum(result["parameters"] for result in good.values())
            whole = seconds["trained_seconds"] + time.perf_counter() - start
            facts = {"set": options.name, "way": f"{way}, {len(members)} together", "seeds": sorted(good)}
            found.append({**facts, "parameters": parameters, **seconds, "whole_seconds": round(whole, 1), **figures})
    return found


def spread(results: Sequence[Result], figure: str) -> tuple[float, float] | None:
    """Mean and standard deviation over seeds; None where nobody has the figure."""
    values = [result["figures"][figure] for result in results if figure in result.get("figures", {})]
    if not values:
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def table(name: str, results: Sequence[Result]) -> str:
    """Published figures, then ours: each way's mean ± standard deviation over its seeds, size and time."""
    found = [figure for result in results for figure in result.get("figures", {})]
    figures = [figure for figure in dict.fromkeys(found) if figure.split()[-1] not in HIDDEN]
    lines = [["", *figures, "parameters", "training", "source"]]
    for one in CONVENTIONS[name].published:
        told = [f"{one.figures[figure]:g}" if figure in one.figures else "" for figure in figures]
        lines.append([one.system, *told, "", "", one.source])
    for way in dict.fromkeys(result["way"] for result in results):
        own = [result for result in results if result["way"] == way and "error" not in result]
        if not own:
            lines.append([f"Regard, {way}", *("failed" for _ in figures), "", "", ""])
            continue
        cells = [_cell(spread(own, figure), len(own), limit(figure)) for figure in figures]
        seconds = statistics.fmean(result["seconds"] for result in own)
        seeds = own[0].get("seeds") or sorted(result["seed"] for result in own)
        said = f"{'seeds' if len(seeds) > 1 else 'seed'} {' '.join(map(str, seeds))}"
        lines.append([f"Regard, {way}", *cells, f"{own[0]['parameters']:,}", f"{seconds:,.0f} s", said])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(found: tuple[float, float] | None, count: int, most: float) -> str:
    if found is None:
        return ""
    digits = 3 if most == 1 else 2  # shares, and per cents
    return f"{found[0]:.{digits}f}" + (f" ± {found[1]:.{digits}f}" if count > 1 else "")


def checks(name: str, results: Sequence[Result], *, dev_only: bool = False) -> list[Check]:
    """What was asked of the recipe and of its ensemble, and how near `auto` comes to it."""
    good = [result for result in results if "error" not in result]
    trained = [sum("seed" in one for one in some) for some in (good, results)]
    made = [Check("trainings that ended well", trained[0], trained[1], trained[1], trained[0] == trained[1])]
    ways = {way: [result for result in good if result["way"] == way] for way in ("recipe", "auto")}
    ways["ensemble"] = [result for result in good if result["way"].startswith("recipe, ")]
    convention = CONVENTIONS[name]
    if dev_only:
        figure = f"dev {convention.chosen}"
        for way, own in ways.items():
            if found := spread(own, figure):
                made.append(Check(f"{figure}, {way}", found[0], limit(figure), found[0], True))
        return made
    for asked in convention.asked:
        found = spread(ways["ensemble" if asked.of == "ensemble" else "recipe"], asked.figure)
        if found:
            ok = better(asked.figure) * (found[0] - asked.value) >= 0
            made.append(Check(f"{asked.figure}, {asked.of}", found[0], limit(asked.figure), asked.value, ok))
    tests = [figure for result in good for figure in result["figures"] if not figure.startswith("dev ")]
    for figure in dict.fromkeys(figure for figure in tests if figure.split()[-1] == convention.chosen):
        pair = [spread(ways[way], figure) for way in ("recipe", "auto")]
        if pair[0] and pair[1]:
            behind = 100 * better(figure) * (pair[0][0] - pair[1][0]) / max(pair[0][0], 1e-9)
            made.append(Check(f"{figure}: auto behind the recipe, %", behind, None, NEAR, behind <= NEAR))
    return made


def keep(options: argparse.Namespace, parts: Parts, results: Sequence[Result], made: Sequence[Check]) -> None:
    """All results as JSON, with the command that made them."""
    name = f"quality-{options.name}"
    options.keep.mkdir(parents=True, exist_ok=True)
    sizes = {"train": len(parts.train), "dev": len(parts.dev)} | {key: len(test) for key, test in parts.tests.items()}
    facts = {"benchmark": name, "machine": machine(), "command": command(options), "questions": sizes}
    document = {**facts, "checks": [asdict(check) for check in made], "results": list(results)}
    (options.keep / f"{name}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def command(options: argparse.Namespace) -> list[str]:
    """The command that was given, without the places that only this machine has."""
    places = {str(options.data): "DATA", str(options.out): "OUT", str(options.keep): "RESULTS"}
    return ["python", "benchmarks/quality.py", *(places.get(word, word) for word in sys.argv[1:])]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What may be chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=READERS, metavar="NAME", help=", ".join(READERS))
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--auto", action="store_true", help="train without a recipe too")
    parser.add_argument("--no-recipe", action="store_true", help="leave the recipe out")
    parser.add_argument("--ensemble", action="store_true", help="measure the seeds' models together too")
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
    if options.no_recipe and not options.auto:
        parser.error("--no-recipe leaves nothing to train; add --auto")
    return options


def main() -> None:
    """Everything, each result as it comes."""
    options = arguments()
    with tempfile.TemporaryDirectory() as nowhere:
        folder = options.out or Path(nowhere)
        parts = READERS[options.name](options.data)
        write(parts, folder / "parts")
        tests = ", ".join(f"{len(test):,} ({part})" for part, test in parts.tests.items())
        print(f"{options.name} on {machine()}: {len(parts.train):,} pairs, dev {len(parts.dev):,}, test {tests}")
        asked, results = trials(options, folder), []
        for result in outcomes(asked, options.parallel):
            results.append(result)
            print(_told(result), flush=True)
        results.sort(key=lambda result: (result["way"] != "recipe", result["seed"]))
        results += together(options, asked, results)
    print(f"\n{table(options.name, results)}")
    beside = [result.get("beside", {}) for result in results]
    for signature in dict.fromkeys(one[name] for one in beside for name in one if name.endswith("signature")):
        print(f"signature: {signature}")
    made = checks(options.name, results, dev_only=options.dev_only)
    if options.keep:
        keep(options, parts, results, made)
    report(f"quality-{options.name}", made)


def _told(result: Result) -> str:
    """A line for one result."""
    found = result.get("figures", {})
    told = ", ".join(f"{name} {value:.4g}" for name, value in found.items()) or result["error"]
    return f"{result['way']}, seed {result['seed']}: {told} ({result.get('whole_seconds', 0):g} s)"


if __name__ == "__main__":
    main()
