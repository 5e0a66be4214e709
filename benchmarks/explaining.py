"""Explanations of random numbers, each recomputed from its shown operands in NumPy and float64.

    python benchmarks/explaining.py                    # 100,000 numbers; the page's need Chromium
    python benchmarks/explaining.py --numbers 2000

Random models of both families, with every score, normaliser, position encoding, norm and
activation of the registries; random texts; half of them with random edits (forced tokens, rows set
by hand, ablated heads, patches …). Of each trace some numbers are of its tensors and some derived:
cosines, PCA and logit lens by Regard, and norms, entropies, distances, means, differences, sums,
quotients and rank correlations by the page's own code in Chromium. The numbers of tensors are
explained twice: by Regard, and by the script of saved pages, which must agree. Every operand that
names a number must have its value. Parts of users are not drawn: their own code computes them.

Run the same command again to resume: finished batches are kept in --out.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # also for the tests
from explaining_check import FLOAT32, deviation, real, wrong_numbers, wrong_operands
from explaining_derived import CALLS, page_functions, table_numbers
from explaining_gates import DERIVED, FORMULAS
from explaining_saved import saved_functions, unlike
from explaining_subjects import EDITS, FAMILIES, Subject, subject, tensor_number
from harness import Check, report

from regard.positions import POSITIONS

BATCH = 1_000
ROUND = 40  # numbers of tensors that are drawn next to some of each derived kind
ROUNDS = 3  # of each trace


@dataclass
class Findings:
    """Counts of one or several batches."""

    operations: Counter = field(default_factory=Counter)
    derived: Counter = field(default_factory=Counter)
    variety: Counter = field(default_factory=Counter)  # families, encodings, edits
    saved: int = 0  # numbers that a saved page explained
    operands: int = 0
    wrong: list[str] = field(default_factory=list)
    deviation: float = 0.0

    @property
    def numbers(self) -> int:
        """How many explanations were checked."""
        return self.operations.total() + self.derived.total()

    def check(self, one: Subject, explained: dict[str, Any], derived: bool) -> None:
        """Check one explanation and those that its operands open."""
        where = f"{explained['name']}{explained['index']}"
        errors = [*wrong_operands(explained, one.lookup), *wrong_numbers(explained, one.phi)]
        self.wrong += [f"{explained['operation']}, {where}: {error}" for error in errors]
        (self.derived if derived else self.operations)[explained["operation"]] += 1
        self.deviation = max(self.deviation, deviation(explained))
        operands = [each for row in explained["rows"] for each in row["operands"]]
        operands += [step["operand"] for step in explained["steps"] if step["operand"]]
        self.operands += len(operands)
        for each in operands:
            if "made" in each:
                if real(each["made"]["result"]) != real(each["value"]):
                    self.wrong.append(f"{where}: {each['name']} opens another number")
                self.check(one, each["made"], True)

    def add(self, other: dict[str, Any]) -> None:
        """Add the counts of a batch."""
        self.operations.update(other["operations"])
        self.derived.update(other["derived"])
        self.variety.update(other["variety"])
        self.operands += other["operands"]
        self.saved += other.get("saved", 0)
        self.wrong += other["wrong"]
        self.deviation = max(self.deviation, other["deviation"])


def check_batch(
    seed: str, numbers: int, ask: Any = None, rounds: int = 1, saved: Any = None
) -> Findings:
    """The findings about so many random numbers; without `ask` none of them is of the page, and
    without `saved` none of a saved one."""
    draw, found = random.Random(seed), Findings()
    while found.numbers < numbers:
        one = subject(draw)
        found.variety.update([one.family, f"position {one.position}", *one.edits])
        drawn: list[Any] = []
        for _ in range(rounds):
            drawn += check_round(draw, one, found, ask)
        if saved is not None:
            check_saved(one, found, drawn, saved)
    return found


def check_saved(one: Subject, found: Findings, drawn: list[Any], saved: Any) -> None:
    """Compare the explanations of a saved page with those of Regard, and recompute them."""
    for (name, index), explained in zip(drawn, saved(one.trace, drawn), strict=True):
        live = one.trace.explain(name, index).as_dict()
        errors = [*unlike(explained, live), *wrong_numbers(explained, one.phi)]
        found.wrong += [*errors, *wrong_operands(explained, one.lookup)]
        found.saved += 1


def check_round(draw: random.Random, one: Subject, found: Findings, ask: Any) -> list[Any]:
    """Check some numbers of one trace; returns the addresses of those of tensors."""
    drawn = [tensor_number(draw, one) for _ in range(ROUND)]
    for name, index in drawn:
        explained = one.trace.explain(name, index).as_dict()
        if real(explained["value"]) != one.lookup("tensor", name, index):
            found.wrong.append(f"{name}{index}: the value is not the tensor's")
        found.wrong += wrong_visible_keys(one, explained)
        found.check(one, explained, derived=False)
    try:
        explanations = list(table_numbers(draw, one))
        if ask is not None:
            explanations += ask([call for group in CALLS for call in group(draw, one)])
    except AssertionError as error:  # a number that disagrees before it is explained
        found.wrong.append(str(error))
        return drawn
    for explained in explanations:
        found.check(one, explained, derived=True)
    return drawn


def wrong_visible_keys(one: Subject, explained: dict[str, Any]) -> list[str]:
    """The count of visible keys of a uniform head, unless it is that of the finite scores."""
    steps = {step["label"]: step["value"] for step in explained["steps"]}
    if "visible keys" not in steps:
        return []
    name = explained["name"].split(".weights")[0] + ".masked"
    if name not in one.trace:  # a recurrent model has no mask
        name = explained["name"]
    head, query, key = explained["index"]
    visible = one.trace[name][head, query].isfinite()
    right = steps["visible keys"] == int(visible.sum())
    right = right and (steps["share"] > 0) == bool(visible[key])
    return [] if right else [f"{explained['name']}: {steps} for {visible}"]


def checks(found: Findings, wanted: int) -> list[Check]:
    """The table: what was explained, and what was wrong."""
    known = set(FORMULAS) - (DERIVED - {"cosine", "sum"})
    encodings = sum(f"position {name}" in found.variety for name in POSITIONS)
    counted = [
        ("numbers explained", found.numbers, wanted, wanted),
        ("operations of tensors", len(found.operations), len(known), len(known)),
        ("kinds of derived numbers", len(found.derived), len(DERIVED), len(DERIVED)),
        ("families", sum(name in found.variety for name in FAMILIES), *[len(FAMILIES)] * 2),
        ("position encodings", encodings, len(POSITIONS), len(POSITIONS)),
        ("kinds of edits", sum(name in found.variety for name in EDITS), *[len(EDITS)] * 2),
    ]
    table = [
        Check(name, value, ceiling, target, value >= target)
        for name, value, ceiling, target in counted
    ]
    share, total = found.deviation, found.operations.total()
    return [
        *table,
        Check("derived numbers", found.derived.total(), found.numbers, None, True),
        Check("explained by a saved page, too", found.saved, total, total, found.saved == total),
        Check("operands compared", found.operands, None, None, True),
        Check("largest deviation from float64", share, FLOAT32, FLOAT32, share <= FLOAT32),
        Check("wrong", len(found.wrong), 0, 0, not found.wrong),
    ]


def main() -> None:
    """Check the numbers batch by batch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--numbers", type=int, default=100_000, help="how many (default: 100,000)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/explaining"), help="finished batches"
    )
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import CHROMIUM, FLAGS

    options.out.mkdir(parents=True, exist_ok=True)
    total, start = Findings(), time.monotonic()
    with ExitStack() as stack:
        ask = saved = None
        for batch in range(-(-options.numbers // BATCH)):
            file = options.out / f"{batch}.json"
            if not file.exists():
                if ask is None:
                    chromium = stack.enter_context(sync_playwright()).chromium
                    browser = chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                    ask, saved = page_functions(browser), saved_functions(browser)
                found = check_batch(f"batch {batch}", BATCH, ask, ROUNDS, saved)
                part = file.with_suffix(".part")
                part.write_text(json.dumps(vars(found)))
                part.rename(file)
            total.add(json.loads(file.read_text()))
            if total.numbers >= options.numbers:
                break
            print(
                f"{total.numbers:,} numbers, {len(total.wrong)} wrong, "
                f"{time.monotonic() - start:.0f} s",
                flush=True,
            )
    for line in total.wrong[:20]:
        print(line)
    report("explaining", checks(total, options.numbers))


if __name__ == "__main__":
    main()
