"""Curves: regression as attention, and score against distance."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.attention import Attention
from regard.attention.scores import ScaledDot
from regard.errors import RegardError, ShapeError
from regard.plots.figures import Numbers, Table, blank, numbers, owner, place, trim
from regard.plots.maps import first_cell, outside_unit
from regard.plots.palette import HEADS, INK, PALE, head_colour
from regard.positions import AdditivePosition, BiasPosition, Position, RotaryPosition

CURVE, WEIGHT = head_colour(0), head_colour(1)


def regression(
    keys: Table,
    values: Table,
    queries: Table,
    weights: Table,
    *,
    query: int | None = None,
    truth: Table | None = None,
    title: str = "",
) -> Figure:
    """Regression as attention: points (keys, values), the curve weights · values over the queries,
    and below it the weights of one query.

    `weights` (query, key) come from `NadarayaWatson.weights` or any attention. `query` selects the
    query whose weights are shown (default: the middle one); `truth`, if known, is the true curve at
    the queries. Where a query has no weight on any key, the curve has a gap.
    """
    points, targets = numbers("keys", keys, "key"), numbers("values", values, "key")
    line, table = numbers("queries", queries, "query"), numbers("weights", weights, "query key")
    if len(points) != len(targets):
        raise ShapeError(
            f"each key needs one value; got {len(points)} keys and {len(targets)} values"
        )
    if table.shape != (len(line), len(points)):
        raise ShapeError(
            f"weights must be {len(line)} queries × {len(points)} keys; got shape {table.shape}"
        )
    _check_unit(table)
    query = len(line) // 2 if query is None else query
    if not 0 <= query < len(line):
        raise RegardError(f"query must be from 0 to {len(line) - 1}; got {query}")

    figure = blank()
    below = place(figure, 0, 0, 6.4, 1.3)
    above = place(figure, 0, 1.5, 6.4, 3.4, sharex=below)
    above.tick_params(labelbottom=False)
    for panel in (above, below):
        panel.axvline(line[query], color=CURVE, linewidth=0.9, linestyle="-.", zorder=0)
        panel.spines[["top", "right"]].set_visible(False)
    if truth is not None:
        _curve(above, line, _along(truth, line), ":", color=INK, linewidth=1.4, label="true curve")
    above.axhline(
        targets.mean(), color=PALE, linestyle="--", linewidth=1.4, label="equal weights (the mean)"
    )
    pooled = np.where(table.sum(1) > 0, table @ targets, np.nan)
    _curve(above, line, pooled, "-", color=CURVE, linewidth=2.2, label="attention pooling")
    above.plot(
        line[query],
        pooled[query],
        "D",
        color=CURVE,
        markeredgecolor="white",
        markersize=9,
        zorder=5,
    )
    _points(above, points, targets, table[query])
    above.set(ylabel="y (value)", title=title)
    _bars(below, points, table[query], line[query])
    return trim(figure)


def _check_unit(weights: Numbers) -> None:
    """Raise if a weight is not between 0 and 1: the area of a point cannot show it."""
    if (outside := outside_unit(weights)).any():
        cell, value = first_cell(weights, outside)
        raise RegardError(
            f"a regression needs weights between 0 and 1, but weights{cell} is {value:.3g}; draw "
            "other weights with plots.weights"
        )


def _curve(axes: Axes, line: Numbers, heights: Numbers, dash: str, **look: str | float) -> None:
    order = np.argsort(line)  # queries may be in any order
    axes.plot(line[order], heights[order], dash, **look)  # type: ignore[arg-type]


def _points(axes: Axes, places: Numbers, targets: Numbers, weights: Numbers) -> None:
    """Points whose area is their weight for the selected query; without weight, a ring."""
    share = weights / max(weights.max(), np.finfo(float).tiny)
    axes.scatter(
        places,
        targets,
        s=22,
        facecolor="white",
        edgecolor=INK,
        linewidth=0.9,
        zorder=3,
        label="key, value",
    )
    label = "its weight for this query (area)"
    areas = axes.scatter(
        places, targets, s=110 * share, color=WEIGHT, alpha=0.75, linewidth=0, zorder=4, label=label
    )
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if text.get_text() == label and isinstance(handle, type(areas)):
            handle.set_sizes([70])  # independent of the weights


def _bars(axes: Axes, places: Numbers, weights: Numbers, query: float) -> None:
    """The weight of each key, at the position of the key."""
    axes.vlines(places, 0, weights, color=WEIGHT, linewidth=2.5)
    axes.set_ylim(0, 1.15 * (weights.max() or 1.0))
    axes.set(xlabel="x (key)", ylabel="weight")
    axes.annotate(
        f"query x = {query:.3g}",
        (query, 1),
        (5, -2),
        ("data", "axes fraction"),
        "offset points",
        va="top",
    )


def _along(truth: Table, line: Numbers) -> Numbers:
    values = numbers("truth", truth, "query")
    if len(values) != len(line):
        raise ShapeError(
            f"truth needs one number for each query; got {len(values)} for {len(line)}"
        )
    return values


_DASHES = ("-", "--", "-.", ":")
_COLOURS = [colour for name, colour in HEADS.items() if name != "yellow"]  # faint on white


@torch.no_grad()
def mean_scores(
    position: Position,
    *,
    dim: int,
    heads: int,
    reach: int = 32,
    contents: Float[Tensor, "content dim"] | None = None,
) -> Float[Tensor, " distance"]:
    """The mean score of a query with a key at each distance key − query from −reach to reach.

    Query and key are the same content at two positions, without projections, compared by
    scaled-dot; the mean is over contents, heads and positions. Without `contents` it is the mean
    over all directions, with length √dim. Shaw's term is a dot product with the query, so its mean
    over all directions is 0: pass contents to see it.
    """
    if reach < 1:
        raise RegardError(f"reach must be at least 1; got {reach}")
    device = next(chain(position.parameters(), position.buffers()), torch.empty(0)).device
    if contents is None:
        # Both directions of each axis have the exact mean of any isotropic distribution.
        axis = torch.eye(dim, device=device) * dim**0.5
        contents = torch.cat([axis, -axis])
    elif contents.ndim != 2 or not len(contents) or contents.shape[1] != dim:
        raise ShapeError(
            f"contents must be (content, {dim}), one at least; got shape {tuple(contents.shape)}"
        )
    # With 2 · reach + 1 positions, each distance occurs at least reach + 1 times.
    places = torch.arange(2 * reach + 1, device=device)
    if isinstance(position, AdditivePosition) and (width := position(places[:1]).shape[-1]) != dim:
        raise ShapeError(
            f"{type(position).__name__} adds vectors of width {width}, but dim is {dim}; make both "
            "equal"
        )
    attention = Attention(
        ScaledDot(heads, dim), bias=position if isinstance(position, BiasPosition) else None
    )
    total = torch.zeros(len(places), len(places), device=device)
    for content in contents.to(device):
        tokens = content.expand(1, heads, len(places), dim)
        if isinstance(position, AdditivePosition):
            tokens = tokens + position(places)
        if isinstance(position, RotaryPosition):
            tokens = position.rotate(tokens, places)
        total += attention.intermediates(tokens, tokens, tokens).biased.mean((0, 1))
    mean = total / len(contents)
    return torch.stack([mean.diagonal(apart).mean() for apart in range(-reach, reach + 1)])


def score_by_distance(
    curves: Mapping[str, Table], *, title: str = "", axes: Axes | None = None
) -> Figure:
    """Curves of score against distance, by name; the middle of each curve is distance 0.

    >>> encodings = {"rotary": Rotary(dim=64), "alibi": Alibi(heads=8)}
    >>> curves = {name: mean_scores(one, dim=64, heads=8) for name, one in encodings.items()}
    >>> score_by_distance(curves)
    """
    if not curves:
        raise RegardError("curves are empty; pass at least one, by name")
    drawn = {name: _odd(name, curve) for name, curve in curves.items()}
    own = axes is None
    if axes is None:
        axes = place(blank(), 0, 0, 6.4, 3.9)
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=0)
    for number, (name, curve) in enumerate(drawn.items()):
        reach = len(curve) // 2
        # Seven colours and four dashes: the first 28 lines differ. Later lines are thinner, because
        # they are drawn over earlier ones.
        look: dict[str, Any] = {
            "color": _COLOURS[number % len(_COLOURS)],
            "linewidth": max(3.2 - 0.3 * number, 1.4),
        }
        axes.plot(
            range(-reach, reach + 1), curve, _DASHES[number % len(_DASHES)], label=name, **look
        )
    axes.set(xlabel="distance (key − query)", ylabel="mean score", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, handlelength=3)
    return trim(owner(axes)) if own else owner(axes)


def _odd(name: str, curve: Table) -> Numbers:
    values = numbers(f"curve {name!r}", curve, "distance")
    if len(values) % 2 == 0:
        raise ShapeError(
            f"curve {name!r} must run from −reach to reach, an odd number of scores; got "
            f"{len(values)}"
        )
    return values
