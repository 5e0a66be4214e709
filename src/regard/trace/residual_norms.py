"""The stream: one token's vector through a model; how long it is, and what each block adds to it."""

from __future__ import annotations

import re
from typing import NamedTuple

from regard.trace.trace import Trace
from regard.vectors import cosine

STACKS = {
    "source": ("src", "enc"),
    "target": ("tgt", "dec"),
}  # how names of its embedding and its layers begin
STATES = {
    "source": r"src\.embed|enc\.\d+\.h",
    "target": r"tgt\.embed|dec\.\d+\.h|attn\.joined|out\.(mixed|readout)",
}


class Added(NamedTuple):
    """What is added to a token's vector: its norm, its cosine with the sum before, and the sum it goes into."""

    name: str
    norm: float
    cosine: float
    into: str


def contributions(trace: Trace, side: str, position: int) -> list[Added]:
    """All that is added to a token's vector, in order; nothing in a recurrent model, where nothing is added up."""
    trace.piece(side, position)
    found = []
    for name in _sums(trace, side):
        before, *parts = trace.origin(name).inputs
        for part in parts:
            vector, whole = trace[part][position], trace[before][position]
            found.append(Added(part, float(vector.norm()), float(cosine(vector, whole)), name))
    return found


def lengths(trace: Trace, side: str, position: int) -> dict[str, float]:
    """The norm of a token's vector after each sum; in a recurrent model, of the states its step goes through."""
    trace.piece(side, position)
    names = _sums(trace, side) or [name for name in trace.names if re.fullmatch(STATES[side], name)]
    return {name: float(trace[name][position].norm()) for name in names}


def _sums(trace: Trace, side: str) -> list[str]:
    begin, stack = STACKS[side]
    return [
        name for name in trace.names if re.fullmatch(rf"{begin}\.sum|{stack}\.\d+\.resid\d", name)
    ]
