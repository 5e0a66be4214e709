"""The output: what the model would say after a row, and from which layer on it knows."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from torch import Tensor

from regard.errors import RegardError
from regard.plots.figures import blank, families, place, trim
from regard.plots.labels import visible
from regard.plots.palette import HEADS, INK
from regard.plots.traced import row_label, spelled
from regard.trace import Trace
from regard.trace.logit_lens import lens, rank

CHOSEN, OTHER = HEADS["vermilion"], HEADS["blue"]
_LINE = 0.24  # inches of a row


def output(trace: Trace, row: int, n: int = 20, *, title: str = "") -> Figure:
    """The n likeliest tokens after a row of the target; beside them the rank of the token that follows, layer by layer.

    The rank at a layer is what the output table would say if the model ended there (nostalgebraist 2020). A recurrent
    model has no such layers.
    """
    label = row_label(trace, "target", row)
    if n < 1:
        raise RegardError(f"n must be at least 1; got {n}")
    ps = trace["out.logprobs"][row].exp()
    followed = trace.following[row].id
    top = ps.topk(min(n, len(ps)))
    figure, told = blank(), trace.pipeline.bundle.target.label
    _bars(place(figure, 0, 0, 3.6, _LINE * len(top.indices)), top.values.tolist(), top.indices.tolist(), followed, told)
    if layers := lens(trace, row):
        tall = _LINE * max(len(layers), 4)
        right = place(figure, 5.4, _LINE * len(top.indices) - tall, 3.0, tall)
        _ranks(right, layers, followed, visible(spelled(trace.following[row].text)))
    figure.axes[0].set_title(title or label, pad=10).set_parse_math(False)
    return trim(figure)


def _bars(axes: Axes, ps: list[float], ids: list[int], followed: int, told: Callable[[int], str]) -> None:
    axes.barh(range(len(ids)), ps, height=0.7, color=[CHOSEN if id == followed else OTHER for id in ids])
    for tick in axes.set_yticks(
        range(len(ids)), [visible(spelled(told(id))) for id in ids], fontsize=9, fontfamily=families()
    ):
        tick.label1.set_parse_math(False)
    for place_, p in enumerate(ps):
        axes.annotate(_share(p), (p, place_), (3, 0), textcoords="offset points", va="center", fontsize=8, color=INK)
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
            axes.annotate(said, (x, place_), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=9)
    for x, said in ((1.12, "rank"), (1.32, "p")):
        axes.annotate(said, (x, 1), (0, 4), "axes fraction", "offset points", ha="right", fontsize=8)
    size = len(next(iter(layers.values())))
    axes.set_xscale("log")
    axes.set(xlim=(0.8, size * 1.2), ylim=(len(ranks) - 0.4, -0.6), xlabel=f"rank of “{word}” among {size:,}")
    axes.xaxis.label.set_parse_math(False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else ""))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(ranks)), list(layers), fontsize=9)
    axes.set_title("rank through the layers", fontsize=10.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
