"""The colours of all plots, from palette.json, which the explorer's page reads too.

All are safe for colour-blind readers: cividis for weights (Nuñez et al. 2018), blue to orange
through grey for signed numbers, and the colours of Okabe & Ito (2008) for heads, which also always
show their number.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple


class Ramp(NamedTuple):
    """Colours for numbers from low to high: evenly spaced `stops`, linearly interpolated, in
    `levels` equal steps."""

    stops: tuple[str, ...]
    levels: int


_FILE = json.loads(files("regard.plots").joinpath("palette.json").read_text(encoding="utf-8"))


def _ramp(name: str) -> Ramp:
    """A ramp of the file, with the colour of every level."""
    stops = tuple(f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in _FILE[name])
    return Ramp(stops, len(stops))


# A weight, from 0 to 1, on the same scale in every plot, so that any two can be compared.
WEIGHTS = _ramp("weights")

# A signed number, from −limit to limit. An odd number of levels gives zero a level of its own.
SIGNED = _ramp("signed")

# Heads in order; the ninth head has the first colour again. Yellow is last: it is faint on white.
HEADS: dict[str, str] = _FILE["heads"]

MASKED: dict[str, str] = _FILE["masked"]

INK: str = _FILE["ink"]  # texts and points
PALE: str = _FILE["pale"]  # baselines and grids


def head_colour(head: int) -> str:
    """The colour of a head by its number."""
    return list(HEADS.values())[head % len(HEADS)]


def colour(ramp: Ramp, share: float) -> str:
    """The colour at `share` of the way from low (0) to high (1), as '#rrggbb'."""
    level = min(int(share * ramp.levels), ramp.levels - 1)
    place = level / (ramp.levels - 1) * (len(ramp.stops) - 1)
    below = min(int(place), len(ramp.stops) - 2)
    low, high = channels(ramp.stops[below]), channels(ramp.stops[below + 1])
    mixed = (a + (b - a) * (place - below) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in mixed)


def ink_on(background: str) -> str:
    """Black or white, whichever has more contrast with a background: at least 4.5 to 1."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(background)
    )
    # WCAG 2.2: black has more contrast from √(1.05 · 0.05) − 0.05 on.
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if luminance > 0.179 else "#ffffff"


def channels(colour: str) -> tuple[float, float, float]:
    """Red, green and blue of '#rrggbb', each from 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def as_json() -> str:
    """The palette as JSON, for programs in other languages."""
    ramps = {"weights": WEIGHTS._asdict(), "signed": SIGNED._asdict()}
    return json.dumps(
        {**ramps, "heads": HEADS, "masked": MASKED, "ink": INK, "pale": PALE}, ensure_ascii=False
    )
