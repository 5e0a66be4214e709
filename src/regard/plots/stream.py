"""The block walk: one token's vector through the model, what each block adds to it and how long it has become."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plots.figures import blank, owner, place, trim
from regard.plots.palette import HEADS, INK
from regard.plots.traced import row_label
from regard.trace import Trace
from regard.trace.residual_norms import Added, contributions, lengths

COLOURS = {"self": HEADS["blue"], "cross": HEADS["bluish green"], "ffn": HEADS["orange"]}
TITLES = {"self": "self-attention adds", "cross": "cross-attention adds", "ffn": "feed-forward adds"}


def block_walk(trace: Trace, side: str, position: int, *, title: str = "") -> Figure:
    """The norm of what each block adds to one token, from top to bottom, and the norm of the sum after it.

    A recurrent model adds nothing up: there the norms of the token's states are drawn.
    """
    label = row_label(trace, side, position)
    added = [one for one in contributions(trace, side, position) if ".resid" in one.into]  # positions are no block's
    norms = lengths(trace, side, position)
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


def _additions(axes: Axes, added: list[Added]) -> None:
    """A bar for each block in the colour of its kind, and its cosine in a column on the right."""
    for kind, colour in COLOURS.items():
        bars = {row: one.norm for row, one in enumerate(added, 1) if f".{kind}." in one.name}
        if bars:
            axes.barh(list(bars), list(bars.values()), height=0.62, color=colour, label=TITLES[kind])
    for row, one in enumerate(added, 1):
        words = f"{one.cosine:.2f}".replace("-", "−")
        axes.annotate(words, (1.1, row), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=9)
    axes.annotate(
        "cosine with\nthe sum before", (1.1, -0.1), xycoords=("axes fraction", "data"), ha="right", fontsize=8
    )
