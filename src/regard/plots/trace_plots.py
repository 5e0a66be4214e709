"""Plots of a trace: cross-attention as a matrix or lines, the residual stream, and the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter
from torch import Tensor

from regard.errors import RegardError
from regard.plots.figures import Numbers, blank, families, numbers, owner, place, trim
from regard.plots.heat_map import (
    predicted,
    row_label,
    row_labels,
    spelled,
    texts,
    token_labels,
    visible,
)
from regard.plots.maps import weights
from regard.plots.palette import HEADS, INK
from regard.trace import Trace
from regard.trace.attention_analysis import MEAN, alignment_matrix, links
from regard.trace.residual_analysis import (
    Contribution,
    logit_lens,
    rank,
    residual_contributions,
    residual_norms,
)

LINK, OTHER = HEADS["vermilion"], HEADS["blue"]
_WIDTH = 7.0  # width of a line of weight 1, in points
_LEAST = 0.01  # the least weight that has a line


def alignment(
    trace: Trace,
    attention: str = MEAN,
    head: int | None = None,
    *,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """Cross-attention weights (target, source) of one attention or the mean of all, with links.

    A frame marks link i-j: target token j gives source token i its largest weight. A token whose
    largest weight is on the end has no link.
    """
    matrix = alignment_matrix(trace, attention, head)
    words = texts(trace, "target"), texts(trace, "source")
    following = predicted(trace, "target")
    figure = weights(
        matrix, *words, predicted=following, title=title or _named(attention, head), axes=axes
    )
    drawn = figure.axes[0] if axes is None else axes
    frame: dict[str, Any] = {"fill": False, "edgecolor": LINK, "linewidth": 2.2, "zorder": 3}
    for i, j in links(matrix):
        drawn.add_patch(Rectangle((i - 0.46, j - 0.46), 0.92, 0.92, **frame))
    key = Rectangle((0, 0), 1, 1, **frame)
    where: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.2}
    drawn.legend([key], ["link i-j"], frameon=False, **where)
    return figure if axes is not None else trim(figure)


def alignment_lines(
    trace: Trace, attention: str = MEAN, head: int | None = None, *, title: str = ""
) -> Figure:
    """The same as lines from source to target tokens, as wide as the weight; links are highlighted.

    Weights below 0.01 have no line.
    """
    matrix = numbers("weights", alignment_matrix(trace, attention, head), "target source")
    left, right = token_labels(texts(trace, "source")), row_labels(trace, "target")
    count = max(len(left), len(right))
    line = max(0.15, min(0.3, 12 / count))  # inches
    tall = line * count
    axes = place(blank(), 0, 0, 3.2, tall)
    heights = [np.linspace(tall, 0, 2 * len(side) + 1)[1::2] for side in (left, right)]
    _lines(axes, matrix, *heights)
    for x, side, labels, places in (
        (-0.02, "right", left, heights[0]),
        (1.02, "left", right, heights[1]),
    ):
        for y, label in zip(places, labels, strict=True):
            word = axes.text(
                x, y, label, ha=side, va="center", fontsize=min(10, 47 * line), color=INK
            )
            word.set(parse_math=False, fontfamily=families())
    axes.set(xlim=(0, 1), ylim=(0, tall), xticks=[], yticks=[])
    axes.set_frame_on(False)
    axes.annotate(
        "key (is matched)", (0, 1), (-2, 6), "axes fraction", "offset points", ha="right", color=INK
    )
    axes.annotate(
        "query (attends)", (1, 1), (2, 6), "axes fraction", "offset points", ha="left", color=INK
    )
    axes.set_title(title or _named(attention, head), pad=26)
    return trim(owner(axes))


def _lines(axes: Axes, matrix: Numbers, left: Numbers, right: Numbers) -> None:
    """Draw all lines, links last, on top of the others."""
    linked = {(i, j) for i, j in links(torch.from_numpy(matrix))}
    drawn = [(i, j) for j, i in np.argwhere(matrix >= _LEAST).tolist()]
    drawn.sort(key=lambda pair: (pair in linked, matrix[pair[1], pair[0]]))
    axes.add_collection(
        LineCollection(
            [[(0, left[i]), (1, right[j])] for i, j in drawn],
            linewidths=[_WIDTH * matrix[j, i] for i, j in drawn],
            colors=[LINK if pair in linked else OTHER for pair in drawn],
            alpha=0.8,
            capstyle="round",
        )
    )


def _named(attention: str, head: int | None) -> str:
    if attention == MEAN:
        return "alignment, mean of all heads"
    return f"{attention} · head {head}" if head is not None else f"{attention}, mean of its heads"


COLOURS = {"self": HEADS["blue"], "cross": HEADS["bluish green"], "ffn": HEADS["orange"]}
TITLES = {
    "self": "self-attention adds",
    "cross": "cross-attention adds",
    "ffn": "feed-forward adds",
}


def block_walk(trace: Trace, side: str, position: int, *, title: str = "") -> Figure:
    """The norm of each block's contribution to the residual stream of a token, and of the sum.

    A recurrent model has no residual stream: the norms of the token's states are drawn.
    """
    label = row_label(trace, side, position)
    contributions = residual_contributions(trace, side, position)
    added = [one for one in contributions if ".resid" in one.into]  # without position vectors
    norms = residual_norms(trace, side, position)
    start, *states = norms
    names = [start, *((one.name for one in added) if added else states)]
    axes = place(blank(), 0, 0, 5.2, 0.27 * len(names) + 0.2)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.4, -0.6)
    if added:
        _additions(axes, added)
        line = {"color": INK, "markersize": 4.5, "linewidth": 1.2, "label": "norm of the sum"}
        axes.plot(list(norms.values()), range(len(norms)), "-o", **line)
        axes.legend(loc="upper left", bbox_to_anchor=(1.14, 1), frameon=False)
    else:
        axes.barh(range(len(names)), list(norms.values()), height=0.62, color=COLOURS["self"])
    axes.set_xlim(left=0)
    axes.set(xlabel="norm", title=title or f"{side} {position}: {label}")
    axes.title.set_parse_math(False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return trim(owner(axes))


def _additions(axes: Axes, added: list[Contribution]) -> None:
    """Draw a bar for each block in the colour of its kind, and its cosine on the right."""
    for kind, colour in COLOURS.items():
        bars = {row: one.norm for row, one in enumerate(added, 1) if f".{kind}." in one.name}
        if bars:
            axes.barh(
                list(bars), list(bars.values()), height=0.62, color=colour, label=TITLES[kind]
            )
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right"}
    for row, one in enumerate(added, 1):
        words = f"{one.cosine:.2f}".replace("-", "−")
        axes.annotate(words, (1.1, row), va="center", fontsize=9, **beside)
    axes.annotate("cosine with\nthe sum before", (1.1, -0.1), fontsize=8, **beside)


CHOSEN = HEADS["vermilion"]
_LINE = 0.24  # inches of a row


def output(trace: Trace, row: int, n: int = 20, *, title: str = "") -> Figure:
    """The n most probable next tokens of a target row, and the rank of the actual one by layer.

    The rank at a layer is read by the logit lens (nostalgebraist 2020), which a recurrent model
    does not have.
    """
    label = row_label(trace, "target", row)
    if n < 1:
        raise RegardError(f"n must be at least 1; got {n}")
    ps = trace["out.logprobs"][row].exp()
    followed = trace.following[row].id
    top = ps.topk(min(n, len(ps)))
    figure, label_of = blank(), trace.pipeline.bundle.target.label
    _bars(
        place(figure, 0, 0, 3.6, _LINE * len(top.indices)),
        top.values.tolist(),
        top.indices.tolist(),
        followed,
        label_of,
    )
    if layers := logit_lens(trace, row):
        tall = _LINE * max(len(layers), 4)
        right = place(figure, 5.4, _LINE * len(top.indices) - tall, 3.0, tall)
        _ranks(right, layers, followed, visible(spelled(trace.following[row].text)))
    figure.axes[0].set_title(title or label, pad=10).set_parse_math(False)
    return trim(figure)


def _bars(
    axes: Axes, ps: list[float], ids: list[int], followed: int, label_of: Callable[[int], str]
) -> None:
    axes.barh(
        range(len(ids)), ps, height=0.7, color=[CHOSEN if id == followed else OTHER for id in ids]
    )
    for tick in axes.set_yticks(
        range(len(ids)),
        [visible(spelled(label_of(id))) for id in ids],
        fontsize=9,
        fontfamily=families(),
    ):
        tick.label1.set_parse_math(False)
    for place_, p in enumerate(ps):
        axes.annotate(
            _share(p),
            (p, place_),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    axes.set(xlim=(0, 1), ylim=(len(ids) - 0.4, -0.6), xlabel="probability")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _share(p: float) -> str:
    return f"{p:.3f}" if p >= 0.0005 else f"{p:.0e}".replace("e-0", "e−").replace("e-", "e−")


def _ranks(axes: Axes, layers: dict[str, Tensor], followed: int, word: str) -> None:
    """Rank against layer, from top to bottom; the best rank is on the left."""
    ranks = [rank(ps, followed) for ps in layers.values()]
    axes.plot(ranks, range(len(ranks)), "-o", color=CHOSEN, markersize=5, linewidth=1.4)
    for place_, (ps, at) in enumerate(zip(layers.values(), ranks, strict=True)):
        words = f"{at:,}", _share(float(ps[followed]))
        for x, word_shown in zip((1.12, 1.32), words, strict=True):
            axes.annotate(
                word_shown,
                (x, place_),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="center",
                fontsize=9,
            )
    for x, heading in ((1.12, "rank"), (1.32, "p")):
        axes.annotate(
            heading, (x, 1), (0, 4), "axes fraction", "offset points", ha="right", fontsize=8
        )
    size = len(next(iter(layers.values())))
    axes.set_xscale("log")
    axes.set(
        xlim=(0.8, size * 1.2),
        ylim=(len(ranks) - 0.4, -0.6),
        xlabel=f"rank of “{word}” among {size:,}",
    )
    axes.xaxis.label.set_parse_math(False)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else "")
    )
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(ranks)), list(layers), fontsize=9)
    axes.set_title("rank through the layers", fontsize=10.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
