"""The colours of every picture, as plain data: matplotlib and the web page read the same ones.

Safe for the colour-blind: cividis was made for them (Nuñez et al. 2018), the signed ramp runs from blue to orange
through grey, and heads wear the colours of Okabe & Ito (2008) and always their number as well.
"""

from __future__ import annotations

import json
from typing import NamedTuple


class Ramp(NamedTuple):
    """Colours for the numbers from low to high: `stops` lie evenly, straight lines between, in `levels` equal steps."""

    stops: tuple[str, ...]
    levels: int


_CIVIDIS = (
    "00224e 00234f 002451 002553 002554 002656 002758 002859 00285b 00295d 002a5f 002a61 002b62 002c64 002c66 002d68 "
    "002e6a 002e6c 002f6d 00306f 003070 003170 003171 013271 053371 083370 0c3470 0f3570 123570 143670 163770 18376f "
    "1a386f 1c396f 1e3a6f 203a6f 213b6e 233c6e 243c6e 263d6e 273e6e 293f6e 2a3f6d 2b406d 2d416d 2e416d 2f426d 31436d "
    "32436d 33446d 34456c 35456c 36466c 38476c 39486c 3a486c 3b496c 3c4a6c 3d4a6c 3e4b6c 3f4c6c 404c6c 414d6c 424e6c "
    "434e6c 444f6c 45506c 46516c 47516c 48526c 49536c 4a536c 4b546c 4c556c 4d556c 4e566c 4f576c 50576c 51586d 52596d "
    "535a6d 545a6d 555b6d 555c6d 565c6d 575d6d 585e6d 595e6e 5a5f6e 5b606e 5c616e 5d616e 5e626e 5e636f 5f636f 60646f "
    "61656f 62656f 636670 646770 656870 656870 666970 676a71 686a71 696b71 6a6c71 6b6d72 6c6d72 6c6e72 6d6f72 6e6f73 "
    "6f7073 707173 717274 727274 727374 737475 747475 757575 767676 777776 777777 787877 797977 7a7a78 7b7a78 7c7b78 "
    "7d7c78 7e7c78 7e7d78 7f7e78 807f78 817f78 828079 838179 848279 858279 868379 878478 888578 898578 8a8678 8b8778 "
    "8c8878 8d8878 8e8978 8f8a78 908b78 918b78 928c78 928d78 938e78 948e77 958f77 969077 979177 989277 999277 9a9376 "
    "9b9476 9c9576 9d9576 9e9676 9f9775 a09875 a19975 a29975 a39a74 a49b74 a59c74 a69c74 a79d73 a89e73 a99f73 aaa073 "
    "aba072 aca172 ada272 aea371 afa471 b0a571 b1a570 b3a670 b4a76f b5a86f b6a96f b7a96e b8aa6e b9ab6d baac6d bbad6d "
    "bcae6c bdae6c beaf6b bfb06b c0b16a c1b26a c2b369 c3b369 c4b468 c5b568 c6b667 c7b767 c8b866 c9b965 cbb965 ccba64 "
    "cdbb63 cebc63 cfbd62 d0be62 d1bf61 d2c060 d3c05f d4c15f d5c25e d6c35d d7c45c d9c55c dac65b dbc75a dcc859 ddc858 "
    "dec958 dfca57 e0cb56 e1cc55 e2cd54 e4ce53 e5cf52 e6d051 e7d150 e8d24f e9d34e ead34c ebd44b edd54a eed649 efd748 "
    "f0d846 f1d945 f2da44 f3db42 f5dc41 f6dd3f f7de3e f8df3c f9e03a fbe138 fce236 fde334 fee434 fee535 fee636 fee838"
)

# A weight, from 0 to 1, on the same scale in every picture, so that any two can be compared.
WEIGHTS = Ramp(tuple(f"#{stop}" for stop in _CIVIDIS.split()), 256)

# A signed number, from −limit to limit. An odd number of levels gives zero a level of its own.
SIGNED = Ramp(
    ("#053061", "#1f5c99", "#4f8fc4", "#a3c8e4", "#f5f5f5", "#f0ba80", "#c67a2e", "#8c4a0b", "#4d2500"),
    257,
)

# Heads in order; a ninth head wears the first colour again, and its own number. Yellow is last: it is faint on white.
HEADS = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "bluish green": "#009e73",
    "reddish purple": "#cc79a7",
    "orange": "#e69f00",
    "sky blue": "#56b4e9",
    "black": "#000000",
    "yellow": "#f0e442",
}

MASKED = {"text": "−∞", "hatch": "////", "face": "#ffffff", "line": "#a6a6a6", "ink": "#404040"}

INK = "#1a1a1a"  # words and points
PALE = "#b8b8b8"  # what stands back: a baseline, a grid


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
    """Black or white, whichever is read better on a background: their contrast is then at least 4.5 to 1."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(background))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue  # WCAG 2.2: black wins from √(1.05 · 0.05) − 0.05 on
    return "#000000" if luminance > 0.179 else "#ffffff"


def channels(colour: str) -> tuple[float, float, float]:
    """Red, green and blue of '#rrggbb', each from 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def as_json() -> str:
    """The whole palette for a page that is not written in Python."""
    ramps = {"weights": WEIGHTS._asdict(), "signed": SIGNED._asdict()}
    return json.dumps({**ramps, "heads": HEADS, "masked": MASKED, "ink": INK, "pale": PALE}, ensure_ascii=False)
