"""What the quality benchmark tells: a table with the published figures, and checks of what was asked."""

import statistics
from collections.abc import Sequence

from harness import Check
from quality_runs import Result
from quality_scores import CONVENTIONS, better, limit

NEAR = 5.0  # per cent that `auto` may stand behind the recipe
WAYS = ("recipe", "distilled", "auto")
HIDDEN = ("chrf",)  # kept, but not in the table
TIMES = ("trained_seconds", "seconds")  # of the training; until the best weights: more, where only a part was timed


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
        seconds = statistics.fmean(max(result[key] for key in TIMES if key in result) for result in own)
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
    """What was asked of the recipe, its students and its ensemble, and how near `auto` comes to it."""
    good = [result for result in results if "error" not in result]
    trained = [sum("seed" in one for one in some) for some in (good, results)]
    made = [Check("trainings that ended well", trained[0], trained[1], trained[1], trained[0] == trained[1])]
    ways = {way: [result for result in good if result["way"] == way] for way in WAYS}
    ways["ensemble"] = [result for result in good if result["way"].startswith("recipe, ")]
    convention = CONVENTIONS[name]
    if dev_only:
        figure = f"dev {convention.chosen}"
        for way, own in ways.items():
            if found := spread(own, figure):
                made.append(Check(f"{figure}, {way}", found[0], limit(figure), found[0], True))
        return made
    for asked in convention.asked:
        if found := spread(ways["recipe" if asked.of == "model" else asked.of], asked.figure):
            ok = better(asked.figure) * (found[0] - asked.value) >= 0
            made.append(Check(f"{asked.figure}, {asked.of}", found[0], limit(asked.figure), asked.value, ok))
    tests = [figure for result in good for figure in result["figures"] if not figure.startswith("dev ")]
    for figure in dict.fromkeys(figure for figure in tests if figure.split()[-1] not in HIDDEN):
        pair = [spread(ways[way], figure) for way in ("recipe", "auto")]
        if pair[0] and pair[1]:
            behind = 100 * better(figure) * (pair[0][0] - pair[1][0]) / max(pair[0][0], 1e-9)
            made.append(Check(f"{figure}: auto behind the recipe, %", behind, None, NEAR, behind <= NEAR))
    return made
