"""Regression as attention: points are keys with values, the curve is their weighted sum at each query."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.errors import RegardError, ShapeError
from regard.plots.figures import Numbers, Table, blank, numbers, place, trim
from regard.plots.maps import check_weights
from regard.plots.palette import INK, PALE, head_colour

CURVE, WEIGHT = head_colour(0), head_colour(1)


def regression(
    keys: Table,
    values: Table,
    queries: Table,
    weights: Table,
    *,
    asked: int | None = None,
    truth: Table | None = None,
    title: str = "",
) -> Figure:
    """Points (keys, values), the curve weights · values over the queries, and below it the weights of one query.

    `weights` (query, key) come from `NadarayaWatson.weights` or any attention. `asked` is which query's weights are
    shown (the middle one unless told); `truth`, if known, is the true curve at the queries. Where a query has no
    weight on any key, the curve has a gap.
    """
    points, targets = numbers("keys", keys, "key"), numbers("values", values, "key")
    line, table = numbers("queries", queries, "query"), numbers("weights", weights, "query key")
    if len(points) != len(targets):
        raise ShapeError(f"each key needs one value; got {len(points)} keys and {len(targets)} values")
    if table.shape != (len(line), len(points)):
        raise ShapeError(f"weights must be {len(line)} queries × {len(points)} keys; got shape {table.shape}")
    check_weights(table, np.ones(table.shape, dtype=bool))
    asked = len(line) // 2 if asked is None else asked
    if not 0 <= asked < len(line):
        raise RegardError(f"asked must be a query from 0 to {len(line) - 1}; got {asked}")

    figure = blank()
    below = place(figure, 0, 0, 6.4, 1.3)
    above = place(figure, 0, 1.5, 6.4, 3.4, sharex=below)
    above.tick_params(labelbottom=False)
    for panel in (above, below):
        panel.axvline(line[asked], color=CURVE, linewidth=0.9, linestyle="-.", zorder=0)
        panel.spines[["top", "right"]].set_visible(False)
    if truth is not None:
        _curve(above, line, _along(truth, line), ":", color=INK, linewidth=1.4, label="true curve")
    above.axhline(targets.mean(), color=PALE, linestyle="--", linewidth=1.4, label="equal weights (the mean)")
    pooled = np.where(table.sum(1) > 0, table @ targets, np.nan)
    _curve(above, line, pooled, "-", color=CURVE, linewidth=2.2, label="attention pooling")
    above.plot(line[asked], pooled[asked], "D", color=CURVE, markeredgecolor="white", markersize=9, zorder=5)
    _points(above, points, targets, table[asked])
    above.set(ylabel="y (value)", title=title)
    _bars(below, points, table[asked], line[asked])
    return trim(figure)


def _curve(axes: Axes, line: Numbers, heights: Numbers, dash: str, **look: str | float) -> None:
    order = np.argsort(line)  # queries may be asked in any order; a curve runs from left to right
    axes.plot(line[order], heights[order], dash, **look)  # type: ignore[arg-type]


def _points(axes: Axes, places: Numbers, targets: Numbers, weights: Numbers) -> None:
    """A point's area is its weight for the query asked; a point without weight is a ring."""
    share = weights / max(weights.max(), np.finfo(float).tiny)
    axes.scatter(places, targets, s=22, facecolor="white", edgecolor=INK, linewidth=0.9, zorder=3, label="key, value")
    label = "its weight for this query (area)"
    areas = axes.scatter(places, targets, s=110 * share, color=WEIGHT, alpha=0.75, linewidth=0, zorder=4, label=label)
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if text.get_text() == label and isinstance(handle, type(areas)):
            handle.set_sizes([70])  # in the legend it is as large as a large weight, whatever the weights


def _bars(axes: Axes, places: Numbers, weights: Numbers, query: float) -> None:
    """The weight of each key, where the key stands."""
    axes.vlines(places, 0, weights, color=WEIGHT, linewidth=2.5)
    axes.set_ylim(0, 1.15 * (weights.max() or 1.0))
    axes.set(xlabel="x (key)", ylabel="weight")
    axes.annotate(f"query x = {query:.3g}", (query, 1), (5, -2), ("data", "axes fraction"), "offset points", va="top")


def _along(truth: Table, line: Numbers) -> Numbers:
    values = numbers("truth", truth, "query")
    if len(values) != len(line):
        raise ShapeError(f"truth needs one number for each query; got {len(values)} for {len(line)}")
    return values
