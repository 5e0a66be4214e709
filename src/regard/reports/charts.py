"""Charts of a report as inline SVG, in the colours of the page's style sheet."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 640, 240
LEFT, RIGHT = 56, 16
TOP, BOTTOM = 12, 34
MAX_POINTS = 400


def escape(text: object) -> str:
    """Text for HTML and SVG."""
    return html.escape(str(text))


def line_chart(points: Points, *, x: str, y: str, band: Sequence[tuple[float, float]] = ()) -> str:
    """A line through the points, with an interval around each if `band` is given."""
    points = _thin(points)
    values = [value for _, value in points] + [edge for pair in band for edge in pair]
    low, high = min(values), max(values)
    low, high = (low - 1, high + 1) if low == high else (low, high)
    start, end = points[0][0], max(points[-1][0], points[0][0] + 1)

    def place(px: float, py: float) -> str:
        across = LEFT + (px - start) / (end - start) * (WIDTH - LEFT - RIGHT)
        down = TOP + (high - py) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{down:.1f}"

    parts = [_axes(low, high, start, end, x, y)]
    if band:
        upper = [place(point[0], pair[1]) for point, pair in zip(points, band, strict=True)]
        lower = [place(point[0], pair[0]) for point, pair in zip(points, band, strict=True)]
        parts.append(f'<polygon class="band" points="{" ".join([*upper, *reversed(lower)])}"/>')
    line = " ".join(place(*point) for point in points)
    parts.append(f'<polyline class="line" points="{line}"/>')
    if len(points) <= 20:
        for point in points:
            across, down = place(*point).split(",")
            parts.append(f'<circle class="dot" cx="{across}" cy="{down}" r="3.5"/>')
    label = f"{y} by {x}"
    return _svg(WIDTH, HEIGHT, "".join(parts), label)


def bar_chart(bars: Sequence[tuple[str, float, str]], *, label: str) -> str:
    """Horizontal bars of (name, value, style class), with the value beside each."""
    highest = max(1e-9, *(value for _, value, _ in bars))
    rows = "".join(
        f'<span>{escape(name)}</span><span class="track"><span class="bar {kind}" '
        f'style="width:{100 * value / highest:.1f}%"></span></span><b>{value:.1f}</b>'
        for name, value, kind in bars
    )
    return f'<div class="bars" role="group" aria-label="{escape(label)}">{rows}</div>'


def alignment_chart(
    weights: Float[Tensor, "target source"], sources: Sequence[str], targets: Sequence[str]
) -> str:
    """Attention of each output token (rows) to the source tokens (columns), darker is more."""
    cell, left = 26, 84
    parts = []
    for j, token in enumerate(sources):
        x = left + j * cell + cell / 2
        parts.append(f'<text x="{x}" y="18" text-anchor="middle">{escape(token)}</text>')
    for i, (token, row) in enumerate(zip(targets, weights.tolist(), strict=False)):
        y = 26 + i * cell
        parts.append(f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{escape(token)}</text>')
        for j, weight in enumerate(row[: len(sources)]):
            title = f"<title>{escape(token)} ← {escape(sources[j])}: {100 * weight:.0f} %</title>"
            parts.append(
                f'<rect class="cell" x="{left + j * cell}" y="{y}" width="{cell - 1}" '
                f'height="{cell - 1}" fill-opacity="{max(0.04, weight):.2f}">{title}</rect>'
            )
    size = left + len(sources) * cell + 8, 30 + len(targets) * cell
    return _svg(*size, "".join(parts), "alignment of output and source", natural=True)


def _axes(low: float, high: float, start: float, end: float, x: str, y: str) -> str:
    """Grid lines with numbers, and the names of both axes."""
    parts = []
    for value in _ticks(low, high):
        down = TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{down:.1f}" y2="{down:.1f}"/>'
            f'<text x="{LEFT - 8}" y="{down + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    bottom = HEIGHT - BOTTOM + 18
    parts.append(f'<text x="{LEFT}" y="{bottom}">{start:,.0f}</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{bottom}" text-anchor="end">{end:,.0f} {escape(x)}</text>'
    )
    name = f'<text class="name" x="{WIDTH - RIGHT}" y="{TOP + 12}" text-anchor="end">'
    parts.append(f"{name}{escape(y)}</text>")
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """About four round numbers between low and high."""
    rough = (high - low) / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first = math.ceil(low / step)
    count = math.floor(high / step) - first + 1
    return [round((first + i) * step, 10) for i in range(count)]


def _thin(points: Points) -> Points:
    """At most MAX_POINTS points, each the mean of its neighbourhood."""
    size = math.ceil(len(points) / MAX_POINTS)
    if size < 2:
        return points
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _svg(width: float, height: float, inside: str, label: str, *, natural: bool = False) -> str:
    size = f' style="width:{width}px"' if natural else ""
    view = f'viewBox="0 0 {width:g} {height:g}"'
    return f'<svg role="img" aria-label="{escape(label)}" {view}{size}>{inside}</svg>'
