"""Draws the error rate of dictionary slices against their number of words, before and after.

    python benchmarks/defaults_plot.py benchmarks/results/defaults-cmudict-slices.json slices.png

The slice for which the earlier defaults were the same is drawn in both curves.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot

CURVES = {"cmudict-slices-before": "earlier defaults", "cmudict-slices": "defaults"}
COLOURS = {"cmudict-slices-before": "#8a8f98", "cmudict-slices": "#2563eb"}


def curve(results: list[dict[str, Any]], name: str) -> list[tuple[int, float, float]]:
    """Words, mean error rate and standard deviation over seeds of each slice."""
    slices: dict[int, list[float]] = {}
    for one in results:
        if one["set"] == name:
            slices.setdefault(int(one["group"]), []).append(one["error_rate"])
    return [
        (words, statistics.fmean(rates), statistics.stdev(rates) if len(rates) > 1 else 0.0)
        for words, rates in sorted(slices.items())
    ]


def main() -> None:
    """Parse the command line and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kept", type=Path, help="results of defaults.py --keep")
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    results = json.loads(options.kept.read_text())["results"]
    after, before = curve(results, "cmudict-slices"), curve(results, "cmudict-slices-before")
    before += [point for point in after if before and point[0] > before[-1][0]]
    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    for name, points in zip(CURVES, (before, after), strict=True):
        words, rates, spreads = zip(*points, strict=True)
        look = {"color": COLOURS[name], "label": CURVES[name], "marker": "o", "capsize": 3}
        axes.errorbar(words, rates, yerr=spreads, **look)
    axes.set(xscale="log", xlabel="words of CMUdict", ylabel="test words wrong, %", ylim=(0, 100))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(options.picture, dpi=100)


if __name__ == "__main__":
    main()
