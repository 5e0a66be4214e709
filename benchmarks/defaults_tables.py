"""The table and the checks of the benchmark of defaults, with targets and published results."""

import statistics
from pathlib import Path
from typing import Any

from harness import Check, keep, machine, report

# Word error rates in per cent: (with one model, with an ensemble of five); of accuracies the rest.
TARGETS = {
    "g2p-2020": (15.5, 13.8),
    "g2p-2020-together": (15.5, 13.8),
    "inflection-2017-low": (60.0, None),
    "inflection-2017-medium": (22.0, None),
}
PUBLISHED = {  # the best of the shared tasks: Gorman et al. 2020; Cotterell et al. 2017
    "g2p-2020": 13.8,
    "g2p-2020-together": 13.8,
    "inflection-2017-low": 49.4,
    "inflection-2017-medium": 17.2,
}


Result = dict[str, Any]


def all_checks(results: list[Result], joined: list[Result]) -> list[Check]:
    """The checks of every set that was measured."""
    names = dict.fromkeys(one["set"] for one in results)
    return [check for name in names for check in checks(name, results, joined)]


def mean_by_seed(name: str, results: list[Result]) -> list[float]:
    """The mean error rate over groups, of each seed that has all groups. Reversed models, which
    only ensembles have, do not count."""
    of_seed: dict[int, list[float]] = {}
    for result in results:
        if result["set"] == name and result.get("order") != "reversed":
            of_seed.setdefault(result["seed"], []).append(result["error_rate"])
    most = max(map(len, of_seed.values()), default=0)
    return [statistics.fmean(rates) for rates in of_seed.values() if len(rates) == most]


def checks(name: str, results: list[Result], joined: list[Result]) -> list[Check]:
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
    groups = {one["group"] for one in results if one["set"] == name}
    found.append(Check(f"{name}: groups (languages or slices)", len(groups), None, None, ok=True))
    found += checks_against_earlier(name, results)
    found += calibration_checks(name, results)
    rates = [one["error_rate"] for one in joined if one["set"] == name]
    if rates:
        mean = statistics.fmean(rates)
        seeds = {one["seed"] for one in results if one["set"] == name}
        label = f"{name}: error rate, ensemble of {len(seeds)}"
        found.append(Check(label, mean, best, together, together is None or mean <= together))
    return found


def checks_against_earlier(name: str, results: list[Result]) -> list[Check]:
    """The mean error rate of each group, with that of the earlier defaults as its target."""
    rates: dict[tuple[str, str], list[float]] = {}
    for one in results:
        rates.setdefault((one["set"], one["group"]), []).append(one["error_rate"])
    found = []
    for (part, group), own in sorted(rates.items(), key=lambda item: len(item[0][1])):
        earlier = rates.get((f"{part}-before", group))
        if part == name and earlier:
            value, target = statistics.fmean(own), statistics.fmean(earlier)
            found.append(Check(f"{name}, {group}: error rate (target: earlier defaults)", value,
                               None, target, value <= target))  # fmt: skip
    return found


def calibration_checks(name: str, results: list[Result]) -> list[Check]:
    """The mean expected calibration error over groups and seeds, before and after."""
    some = [one["calibration"] for one in results
            if one["set"] == name and "after" in one.get("calibration", {})]  # fmt: skip
    if not some:
        return []
    before, after, floor = (
        statistics.fmean(one[key] for one in some) for key in ("before", "after", "floor")
    )
    return [
        Check(f"{name}: calibration error before", before, floor, None, ok=True),
        Check(f"{name}: calibration error after", after, floor, before, after <= before),
    ]


def print_table(results: list[Result], joined: list[Result]) -> None:
    """The error rate of every group."""
    ensembles = {(one["set"], one["group"]): one["error_rate"] for one in joined}
    names = dict.fromkeys((one["set"], one["group"]) for one in results)
    print(
        "| set | group | error rate | ensemble | parameters | seconds |\n|---|---|---|---|---|---|"
    )
    for name in sorted(names):
        some = [one for one in results if (one["set"], one["group"]) == name]
        rates = [one["error_rate"] for one in some if one.get("order") != "reversed"]
        spread = f" ± {statistics.stdev(rates):.2f}" if len(rates) > 1 else ""
        both = f"{ensembles[name]:.2f}" if name in ensembles else ""
        seconds = statistics.fmean(one["seconds"] for one in some)
        print(f"| {name[0]} | {name[1]} | {statistics.fmean(rates):.2f}{spread} | {both} | "
              f"{some[0]['parameters']:,} | {seconds:.0f} |")  # fmt: skip


def dev_checks(results: list[Result], rivals: dict[str, str], prefix: str = "") -> list[Check]:
    """The mean dev error rate of each kind over groups; it must be below that of its rival."""
    kinds = [kind for kind in results[0]["rates"] if all(kind in one["rates"] for one in results)]
    means = {kind: statistics.fmean(one["rates"][kind] for one in results) for kind in kinds}
    found = [Check("groups", len(results), None, None, ok=True)]
    for kind, mean in means.items():
        target = means.get(rivals.get(kind, ""))
        found.append(Check(f"{prefix}{kind}: dev error rate, %", mean, None, target,
                           target is None or mean < target))  # fmt: skip
    return found


def report_on_dev(
    benchmark: str, results: list[Result], checks: list[Check], kept: Path | None
) -> None:
    """Print the dev error rates of each group; keep and report them."""
    print("| set | group | models | dev error rate, % |\n|---|---|---|---|")
    for one in results:
        for kind, rate in one["rates"].items():
            print(f"| {one['set']} | {one['group']} | {kind} | {rate:.2f} |")
    if kept:
        keep(kept, benchmark, checks, machine(), results=results)
    report(benchmark, checks)
