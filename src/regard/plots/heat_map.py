"""Heat maps: coloured cells with numbers, hatched masked cells, rows and columns labelled with
tokens.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.image import AxesImage
from matplotlib.patches import Patch
from torch import Tensor

from regard.errors import ShapeError
from regard.plots.figures import Flags, Numbers, colour_map, families, owner
from regard.plots.palette import INK, MASKED, Ramp, colour, ink_on
from regard.text import BEGIN, END, UNKNOWN
from regard.text.tokenizers import SPECIAL_TOKENS
from regard.trace import AttentionBlock, Trace

_VISIBLE = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"})
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_LONGEST = 20


def token_labels(tokens: Sequence[str]) -> list[str]:
    """Tokens; a repeated token also carries its position: the₀ man hit the₃ car."""
    texts = [visible(token) for token in tokens]
    count = Counter(texts)
    return [
        text if count[text] == 1 else text + str(position).translate(_SUBSCRIPTS)
        for position, text in enumerate(texts)
    ]


def step_labels(prefix: Sequence[str], predicted: Sequence[str]) -> list[str]:
    """The rows of a decoder: the token fed in and the token it predicted, "after the → Hund"."""
    if len(prefix) != len(predicted):
        raise ShapeError(
            f"each token fed in predicts one; got {len(prefix)} fed in and {len(predicted)} "
            "predicted"
        )
    pairs = zip(token_labels(prefix), predicted, strict=True)
    return [f"after {before} → {visible(after)}" for before, after in pairs]


def visible(token: str) -> str:
    """A token with visible white space, shortened in the middle if it is long. A combining mark
    stands on a dotted circle."""
    shown = token.translate(_VISIBLE) or "∅"
    if unicodedata.combining(shown[0]):
        shown = f"\N{DOTTED CIRCLE}{shown}"
    if len(shown) <= _LONGEST:
        return shown
    half = (_LONGEST - 1) // 2
    return f"{shown[:half]}…{shown[-half:]}"


SIGNS = {SPECIAL_TOKENS[BEGIN]: "▶", SPECIAL_TOKENS[END]: "■", SPECIAL_TOKENS[UNKNOWN]: "<unknown>"}


def texts(trace: Trace, side: str) -> list[str]:
    """The tokens of a side as they are displayed."""
    return [spelled(piece.text) for piece in trace.pieces(side)]


def spelled(text: str) -> str:
    """A token as it is displayed; begin and end have symbols, as on the page."""
    return SIGNS.get(text, text)


def predicted(trace: Trace, side: str) -> list[str] | None:
    """The token that follows each row of the target; None for the source."""
    return [spelled(piece.text) for piece in trace.following] if side == "target" else None


def row_labels(trace: Trace, side: str) -> list[str]:
    """Each token of the source; of the target also what follows it, "after the → Hund"."""
    following = predicted(trace, side)
    return (
        token_labels(texts(trace, side))
        if following is None
        else step_labels(texts(trace, side), following)
    )


def row_label(trace: Trace, side: str, position: int) -> str:
    """The label of one token; raises if there is no such position."""
    trace.piece(side, position)
    return row_labels(trace, side)[position]


def allowed(trace: Trace, one: AttentionBlock) -> Bool[Tensor, "head query key"]:
    """Where an attention may attend: where scores are finite, or an edit set a weight."""
    weights, masked = trace[f"{one.name}.weights"], f"{one.name}.masked"
    if masked not in trace.names:
        return torch.ones(weights.shape, dtype=torch.bool)
    return trace[masked].isfinite() | (weights != 0)


FEW = 12  # rows and columns up to which numbers are printed in cells
MANY = 64  # rows or columns beyond which not every one is labelled
_LETTER = 0.085  # approximate width of a letter in inches
_STEPS = [factor * 10**power for power in range(6) for factor in (1, 2, 5)]


def cell_size(rows: int, columns: int) -> float:
    """The size of a cell in inches: large enough for its label, up to MANY rows or columns."""
    count = max(rows, columns)
    return min(0.62, max(0.2, 7 / count)) if count <= MANY else 0.2 * MANY / count


def draw(
    axes: Axes,
    values: Numbers,
    ramp: Ramp,
    limits: tuple[float, float],
    *,
    allowed: Flags,
    printed: bool,
    letters: float = 8.5,
) -> AxesImage:
    """Draw the cells of a table; masked cells are hatched, and show −∞ if numbers are printed."""
    low, high = limits
    hidden = np.ma.array(values, mask=~allowed)
    # "nearest", so that the colour at a cell's centre is exactly the colour of its number.
    image = axes.imshow(hidden, colour_map(ramp), vmin=low, vmax=high, interpolation="nearest")
    if not allowed.all():
        axes.add_collection(_hatching(~allowed), autolim=False)
    if printed:
        for (row, column), value in np.ndenumerate(values):
            share = min(max((value - low) / (high - low), 0), 1)
            if allowed[row, column]:
                words, ink, behind = _short(value), ink_on(colour(ramp, share)), None
            else:  # on white: letters on hatching are hard to read
                words, ink, behind = (
                    MASKED["text"],
                    MASKED["ink"],
                    {"facecolor": MASKED["face"], "pad": 1.5, "lw": 0},
                )
            axes.text(
                column,
                row,
                words,
                ha="center",
                va="center",
                color=ink,
                fontsize=letters,
                bbox=behind,
            )
    return image


def _short(value: float) -> str:
    """Two decimals, with a true minus, and no minus before a zero."""
    text = f"{value:.2f}"
    return text.replace("-", "" if float(text) == 0 else "−")


def _hatching(hidden: Flags) -> PolyCollection:
    """One rectangle per run of masked cells in a row, to keep the number of polygons small."""
    runs = []
    for row, cells in enumerate(hidden):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], cells, [False]]).astype(int)))
        runs += [
            (row - 0.5, start - 0.5, end - 0.5)
            for start, end in zip(edges[::2], edges[1::2], strict=True)
        ]
    corners = [
        [(left, top), (right, top), (right, top + 1), (left, top + 1)] for top, left, right in runs
    ]
    return PolyCollection(
        corners,
        hatch=MASKED["hatch"],
        facecolor=MASKED["face"],
        edgecolor=MASKED["line"],
        linewidth=0,
    )


def name_rows(axes: Axes, labels: Sequence[str], title: str, cell: float) -> None:
    """Label the rows and the axis."""
    every = _step(0.16 / cell)
    places = range(0, len(labels), every)
    named = [labels[i] for i in places]
    for tick in axes.set_yticks(
        places, named, fontsize=_letters(cell * every), fontfamily=families()
    ):
        tick.label1.set_parse_math(False)  # a token may contain a $
    axes.set_ylabel(title, color=INK)
    axes.tick_params(length=0)


def name_columns(axes: Axes, labels: Sequence[str], title: str, cell: float) -> None:
    """Label the columns, slanted if they would overlap, and the axis."""
    numeric = all(label.isdigit() for label in labels)
    every = _step((max(map(len, labels)) * _LETTER + 0.1 if numeric else 0.16) / cell)
    places = range(0, len(labels), every)
    named = [labels[i] for i in places]
    slanted = max(map(len, named)) * _LETTER + 0.05 > cell * every
    turn: dict[str, Any] = (
        {"rotation": 50, "ha": "right", "va": "top", "rotation_mode": "anchor"} if slanted else {}
    )
    for tick in axes.set_xticks(
        places, named, fontsize=_letters(cell * every), fontfamily=families(), **turn
    ):
        tick.label1.set_parse_math(False)
    axes.set_xlabel(title, color=INK)
    axes.tick_params(length=0)


def _step(cells: float) -> int:
    """The smallest step 1, 2, 5, 10, 20 … between labels of this many cells without overlap."""
    return next(step for step in _STEPS if step >= cells)


def _letters(height: float) -> float:
    """The font size that fits into some inches of height."""
    return float(np.clip(height * 72 * 0.75, 7, 10))


def scale_beside(axes: Axes, image: AxesImage, title: str) -> Axes:
    """Add a colour bar as high as the map."""
    width = axes.get_window_extent().width / owner(axes).dpi
    beside = axes.inset_axes((1 + 0.2 / width, 0, 0.16 / width, 1))
    low, high = image.get_clim()
    bar = owner(axes).colorbar(
        image, cax=beside, ticks=[low, (low + high) / 2, high], label=title, format=_tick
    )
    bar.outline.set_visible(False)
    return beside


def _tick(value: float, place: int | None) -> str:
    return f"{value:.3g}".replace("-", "−")


def add_mask_legend(bar: Axes) -> None:
    """Explain the hatching below the colour bar."""
    key = Patch(facecolor=MASKED["face"], edgecolor=MASKED["line"], hatch=MASKED["hatch"])
    words = f"masked ({MASKED['text']})"
    bar.legend(
        [key],
        [words],
        loc="upper left",
        bbox_to_anchor=(0, 0),
        borderaxespad=1.3,
        borderpad=0,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.4,
        handletextpad=0.5,
    )
