"""Whether the tables of docs/quality.md still hold: trainings of today against the kept ones.

    python benchmarks/quality_again.py NEW/quality-*.json --before REVISION --keep RESULTS

NEW are files of `quality.py --keep`. The mean of each test figure may be at most 2 % worse than the
mean in the kept results of the same method at a git revision, and `auto` at most 5 % behind the
kept recipe.
"""

import argparse
import json
import subprocess
from pathlib import Path

from harness import Check, keep, report
from quality_runs import Result
from quality_tables import HIDDEN, NEAR, percent_behind, spread

MOST = 2.0  # per cent that a figure may be worse than in the table


def kept_before(revision: str, name: str) -> list[Result]:
    """The results of a set at a git revision."""
    path = f"{revision}:benchmarks/results/quality-{name}.json"
    found = subprocess.run(["git", "show", path], check=True, capture_output=True, text=True)
    return json.loads(found.stdout)["results"]


def of_method(results: list[Result], method: str) -> list[Result]:
    """The completed trainings of one method."""
    return [one for one in results if one["method"] == method and "error" not in one]


def compare(name: str, method: str, new: list[Result], before: list[Result]) -> list[Check]:
    """Every test figure of one method on one set against the table."""
    own, table = of_method(new, method), of_method(before, method)
    against = [(table, "worse by", MOST)]
    if method == "auto":
        against.append((of_method(before, "recipe"), "behind the recipe", NEAR))
    checks = []
    for figure in own[0]["figures"]:
        if figure.startswith("dev ") or figure.split()[-1] in HIDDEN:
            continue
        label = f"{name}, {method}, {figure}, seeds {len(own)} against {len(table)}"
        for other, words, most in against:
            behind = percent_behind(figure, own, other)
            assert behind is not None
            checks.append(Check(f"{label}: {words}, %", behind, None, most, behind <= most))
    return checks


def main() -> None:
    """Parse options, compare, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("new", nargs="+", type=Path, help="results of quality.py --keep")
    parser.add_argument("--before", default="HEAD", help="git revision of the kept results")
    parser.add_argument("--keep", type=Path, help="file for all results")
    options = parser.parse_args()
    checks, results, on = [], [], ""
    print("| set | method | figure | before | again |\n|---|---|---|---|---|")
    for path in options.new:
        document = json.loads(path.read_text())
        name, on = document["benchmark"].removeprefix("quality-"), document["machine"]
        before = kept_before(options.before, name)
        for method in dict.fromkeys(one["method"] for one in document["results"]):
            found = compare(name, method, document["results"], before)
            checks += found
            own = of_method(document["results"], method)
            for figure in own[0]["figures"]:
                cells = (spread(some, figure) for some in (of_method(before, method), own))
                shown = (f"{cell[0]:.3f} ± {cell[1]:.3f}" if cell else "" for cell in cells)
                print(f"| {name} | {method} | {figure} | {' | '.join(shown)} |")
            results += [
                {key: one[key] for key in ("set", "method", "seed", "figures")} for one in own
            ]
    if options.keep:
        keep(options.keep, "quality_again", checks, on, results=results)
    report("quality_again", checks, on)


if __name__ == "__main__":
    main()
