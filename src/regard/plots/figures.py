"""Basics of all plots: checked numbers, figures without global state, colour maps, fonts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import RegardError, ShapeError
from regard.plots.palette import Ramp

Table = Tensor | NDArray[Any]  # what callers pass
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Fonts for scripts that matplotlib's own font lacks, in order of preference.
_OTHER_SCRIPTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "WenQuanYi Micro Hei",
    "Noto Sans Arabic",
    "Noto Sans Devanagari",
    "Arial Unicode MS",
)


def tensor(table: Table) -> Tensor:
    """Any table as a tensor; arrays that torch cannot share (reversed, big-endian) are copied."""
    if isinstance(table, np.ndarray):
        native = np.dtype(np.float64) if table.dtype.kind == "f" else table.dtype.newbyteorder("=")
        table = np.array(table, dtype=native, order="C")
    return torch.as_tensor(table).detach()


def numbers(name: str, table: Table, axes: str) -> Numbers:
    """The numbers of a tensor, after checking its axes."""
    values = tensor(table).to("cpu", torch.float64).numpy()
    wanted = axes.split()
    if values.ndim != len(wanted):
        extra = values.ndim - len(wanted)
        fix = (
            f"; choose one of them first, as in {name}[{', '.join('0' * extra)}]"
            if extra > 0
            else ""
        )
        raise ShapeError(f"{name} must be ({', '.join(wanted)}); got shape {values.shape}{fix}")
    if not values.size:
        raise ShapeError(
            f"{name} are empty: got shape {values.shape}; a plot needs at least one number"
        )
    if not np.isfinite(values).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise RegardError(
            f"{name}[{', '.join(map(str, place))}] is {values[place]}; only finite numbers can "
            "be drawn"
        )
    return values


def flags(name: str, table: Table | None, shape: Sequence[int]) -> Flags:
    """A boolean table broadcast to a shape; all True if there is none."""
    if table is None:
        return np.ones(shape, dtype=bool)
    values = tensor(table).cpu()
    if values.dtype != torch.bool:
        raise RegardError(
            f"{name} must be boolean, True = may attend; got "
            f"{str(values.dtype).removeprefix('torch.')}"
        )
    try:
        return np.broadcast_to(values.numpy(), tuple(shape))
    except ValueError:
        raise ShapeError(
            f"{name} has shape {tuple(values.shape)}, which does not broadcast to {tuple(shape)}"
        ) from None


def blank() -> Figure:
    """An empty figure without pyplot state. `place` axes on it, then `trim` it."""
    return Figure(figsize=(1, 1), dpi=120)


def place(
    figure: Figure, left: float, bottom: float, width: float, height: float, **options: Any
) -> Any:
    """New axes at a position in inches, whatever the current size of the figure."""
    across, up = figure.get_size_inches()
    return figure.add_axes((left / across, bottom / up, width / across, height / up), **options)


def trim(figure: Figure, margin: float = 0.12) -> Figure:
    """Resize a figure to its contents and a margin; layout engines clip text outside of axes."""
    drawn = figure.get_tightbbox()
    before = figure.get_size_inches()
    after = (drawn.width + 2 * margin, drawn.height + 2 * margin)
    shift = np.array([margin - drawn.x0, margin - drawn.y0])
    for axes in figure.axes:
        old = axes.get_position(original=True)
        corner = (np.array([old.x0, old.y0]) * before + shift) / after
        axes.set_position((*corner, *np.array([old.width, old.height]) * before / after))
    for text in figure.texts:
        text.set_position(tuple((np.array(text.get_position()) * before + shift) / after))
    figure.set_size_inches(after)
    return figure


def owner(axes: Axes) -> Figure:
    """The whole figure that contains these axes, also inside a subfigure."""
    figure = axes.figure
    while not isinstance(figure, Figure):
        assert figure is not None, "axes that were removed from their figure"
        figure = figure.figure
    return figure


@cache
def colour_map(ramp: Ramp) -> LinearSegmentedColormap:
    """The ramp as a colour map of matplotlib."""
    return LinearSegmentedColormap.from_list("regard", list(ramp.stops), ramp.levels)


@cache
def families() -> tuple[str, ...]:
    """Installed fonts for any script, in order of preference."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return "DejaVu Sans", *(name for name in _OTHER_SCRIPTS if name in installed)
