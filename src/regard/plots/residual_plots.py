"""The residual stream of one token, and the output distribution through the layers."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from torch import Tensor

from regard.errors import RegardError
from regard.plots.figures import blank, families, owner, place, trim
from regard.plots.palette import HEADS, INK
from regard.plots.token_labels import row_label, spelled, visible
from regard.trace import Trace
from regard.trace.residual_analysis import (
    Contribution,
    logit_lens,
    rank,
    residual_contributions,
    residual_norms,
)

COLOURS = {"self": HEADS["blue"], "cross": HEADS["bluish green"], "ffn": HEADS["orange"]}
TITLES = {
    "self": "self-attention adds",
    "cross": "cross-attention adds",
    "ffn": "feed-forward adds",
}


def block_walk(trace: Trace, side: str, position: int, *, title: str = "") -> Figure:
    """The norm of what each block adds to one token, from top to bottom, and the norm of the sum
    after it.

    A recurrent model adds nothing up: there the norms of the token's states are drawn.
    """
    label = row_label(trace, side, position)
    added = [
        one for one in residual_contributions(trace, side, position) if ".resid" in one.into
    ]  # positions are no block's
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
    """A bar for each block in the colour of its kind, and its cosine in a column on the right."""
    for kind, colour in COLOURS.items():
        bars = {row: one.norm for row, one in enumerate(added, 1) if f".{kind}." in one.name}
        if bars:
            axes.barh(
                list(bars), list(bars.values()), height=0.62, color=colour, label=TITLES[kind]
            )
    for row, one in enumerate(added, 1):
        words = f"{one.cosine:.2f}".replace("-", "−")
        axes.annotate(
            words,
            (1.1, row),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize=9,
        )
    axes.annotate(
        "cosine with\nthe sum before",
        (1.1, -0.1),
        xycoords=("axes fraction", "data"),
        ha="right",
        fontsize=8,
    )


CHOSEN, OTHER = HEADS["vermilion"], HEADS["blue"]
_LINE = 0.24  # inches of a row


def output(trace: Trace, row: int, n: int = 20, *, title: str = "") -> Figure:
    """The n likeliest tokens after a row of the target; beside them the rank of the token that
    follows, layer by layer.

    The rank at a layer is what the output table would say if the model ended there (nostalgebraist
    2020). A recurrent model has no such layers.
    """
    label = row_label(trace, "target", row)
    if n < 1:
        raise RegardError(f"n must be at least 1; got {n}")
    ps = trace["out.logprobs"][row].exp()
    followed = trace.following[row].id
    top = ps.topk(min(n, len(ps)))
    figure, told = blank(), trace.pipeline.bundle.target.label
    _bars(
        place(figure, 0, 0, 3.6, _LINE * len(top.indices)),
        top.values.tolist(),
        top.indices.tolist(),
        followed,
        told,
    )
    if layers := logit_lens(trace, row):
        tall = _LINE * max(len(layers), 4)
        right = place(figure, 5.4, _LINE * len(top.indices) - tall, 3.0, tall)
        _ranks(right, layers, followed, visible(spelled(trace.following[row].text)))
    figure.axes[0].set_title(title or label, pad=10).set_parse_math(False)
    return trim(figure)


def _bars(
    axes: Axes, ps: list[float], ids: list[int], followed: int, told: Callable[[int], str]
) -> None:
    axes.barh(
        range(len(ids)), ps, height=0.7, color=[CHOSEN if id == followed else OTHER for id in ids]
    )
    for tick in axes.set_yticks(
        range(len(ids)),
        [visible(spelled(told(id))) for id in ids],
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
        for x, said in zip((1.12, 1.32), words, strict=True):
            axes.annotate(
                said,
                (x, place_),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="center",
                fontsize=9,
            )
    for x, said in ((1.12, "rank"), (1.32, "p")):
        axes.annotate(
            said, (x, 1), (0, 4), "axes fraction", "offset points", ha="right", fontsize=8
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
