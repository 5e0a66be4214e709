"""The colours of every picture, from palette.json: matplotlib and the web page read that one file.

Safe for the colour-blind: cividis was made for them (Nuñez et al. 2018), the signed ramp runs from
blue to orange through grey, and heads wear the colours of Okabe & Ito (2008) and always their
number as well.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple


class Ramp(NamedTuple):
    """Colours for the numbers from low to high: `stops` lie evenly, straight lines between, in
    `levels` equal steps.
    """

    stops: tuple[str, ...]
    levels: int


_FILE = json.loads(files("regard.plots").joinpath("palette.json").read_text(encoding="utf-8"))


def _ramp(name: str) -> Ramp:
    """A ramp of the file, which gives the colour of every level."""
    stops = tuple(f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in _FILE[name])
    return Ramp(stops, len(stops))


# A weight, from 0 to 1, on the same scale in every picture, so that any two can be compared.
WEIGHTS = _ramp("weights")

# A signed number, from −limit to limit. An odd number of levels gives zero a level of its own.
SIGNED = _ramp("signed")

# Heads in order; a ninth head wears the first colour again, and its own number. Yellow is last: it
# is faint on white.
HEADS: dict[str, str] = _FILE["heads"]

MASKED: dict[str, str] = _FILE["masked"]

INK: str = _FILE["ink"]  # words and points
PALE: str = _FILE["pale"]  # what stands back: a baseline, a grid


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
    """Black or white, whichever is read better on a background: their contrast is then at least 4.5
    to 1.
    """
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(background)
    )
    luminance = (
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    )  # WCAG 2.2: black wins from √(1.05 · 0.05) − 0.05 on
    return "#000000" if luminance > 0.179 else "#ffffff"


def channels(colour: str) -> tuple[float, float, float]:
    """Red, green and blue of '#rrggbb', each from 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def as_json() -> str:
    """The palette of these pictures for a program that is not written in Python."""
    ramps = {"weights": WEIGHTS._asdict(), "signed": SIGNED._asdict()}
    return json.dumps(
        {**ramps, "heads": HEADS, "masked": MASKED, "ink": INK, "pale": PALE}, ensure_ascii=False
    )
