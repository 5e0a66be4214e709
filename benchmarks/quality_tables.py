"""The table of the quality benchmark, with the published figures, and its checks."""

import statistics
from collections.abc import Sequence

from harness import Check
from quality_runs import Result
from quality_scores import CONVENTIONS, better, limit

NEAR = 5.0  # per cent that `auto` may be behind the recipe
METHODS = ("recipe", "distilled", "auto")
HIDDEN = ("chrf",)  # stored, but not in the table
TIMES = ("trained_seconds", "seconds")  # of the training; until the best weights


def spread(results: Sequence[Result], figure: str) -> tuple[float, float] | None:
    """Mean and standard deviation over seeds; None if no result has the figure."""
    values = [
        result["figures"][figure] for result in results if figure in result.get("figures", {})
    ]
    if not values:
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def table(name: str, results: Sequence[Result]) -> str:
    """Published figures, then ours by method: mean ± standard deviation over seeds, size and
    time."""
    found = [figure for result in results for figure in result.get("figures", {})]
    figures = [figure for figure in dict.fromkeys(found) if figure.split()[-1] not in HIDDEN]
    lines = [["", *figures, "parameters", "training", "source"]]
    for one in CONVENTIONS[name].published:
        shown = [f"{one.figures[figure]:g}" if figure in one.figures else "" for figure in figures]
        lines.append([one.system, *shown, "", "", one.source])
    for method in dict.fromkeys(result["method"] for result in results):
        own = [result for result in results if result["method"] == method and "error" not in result]
        if not own:
            lines.append([f"Regard, {method}", *("failed" for _ in figures), "", "", ""])
            continue
        cells = [_cell(spread(own, figure), len(own), limit(figure)) for figure in figures]
        seconds = statistics.fmean(
            max(result[key] for key in TIMES if key in result) for result in own
        )
        seeds = own[0].get("seeds") or sorted(result["seed"] for result in own)
        named = f"{'seeds' if len(seeds) > 1 else 'seed'} {' '.join(map(str, seeds))}"
        lines.append(
            [f"Regard, {method}", *cells, f"{own[0]['parameters']:,}", f"{seconds:,.0f} s", named]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(found: tuple[float, float] | None, count: int, most: float) -> str:
    if found is None:
        return ""
    digits = 3 if most == 1 else 2  # shares or per cent
    return f"{found[0]:.{digits}f}" + (f" ± {found[1]:.{digits}f}" if count > 1 else "")


def checks(name: str, results: Sequence[Result], *, dev_only: bool = False) -> list[Check]:
    """The targets of the recipe, its students and its ensemble; and how far `auto` is behind it."""
    good = [result for result in results if "error" not in result]
    trained = [sum("seed" in one for one in some) for some in (good, results)]
    made = [
        Check("trainings completed", trained[0], trained[1], trained[1], trained[0] == trained[1])
    ]
    methods = {
        method: [result for result in good if result["method"] == method] for method in METHODS
    }
    methods["ensemble"] = [result for result in good if result["method"].startswith("recipe, ")]
    convention = CONVENTIONS[name]
    if dev_only:
        figure = f"dev {convention.chosen}"
        for method, own in methods.items():
            if found := spread(own, figure):
                made.append(Check(f"{figure}, {method}", found[0], limit(figure), found[0], True))
        return made
    for target in convention.targets:
        name = "recipe" if target.of == "model" else target.of
        if found := spread(methods[name], target.figure):
            ok = better(target.figure) * (found[0] - target.value) >= 0
            label, best = f"{target.figure}, {target.of}", limit(target.figure)
            made.append(Check(label, found[0], best, target.value, ok))
    tests = [
        figure for result in good for figure in result["figures"] if not figure.startswith("dev ")
    ]
    for figure in dict.fromkeys(figure for figure in tests if figure.split()[-1] not in HIDDEN):
        behind = percent_behind(figure, methods["auto"], methods["recipe"])
        if behind is not None:
            made.append(
                Check(f"{figure}: auto behind the recipe, %", behind, None, NEAR, behind <= NEAR)
            )
    return made


def percent_behind(figure: str, own: Sequence[Result], other: Sequence[Result]) -> float | None:
    """How much worse the mean of a figure is than that of other trainings, in per cent of theirs;
    None without one of them."""
    means = spread(own, figure), spread(other, figure)
    if not (means[0] and means[1]):
        return None
    return 100 * better(figure) * (means[1][0] - means[0][0]) / max(means[1][0], 1e-9)
