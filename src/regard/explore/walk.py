"""Walk: one token's vector through the model; how long it is, and how much each block adds to it."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from regard.explore.space import at
from regard.explore.traces import Held

STACKS = {"source": ("src", "enc"), "target": ("tgt", "dec")}


def walk(held: Held, side: str, position: int) -> dict[str, Any]:
    """What is added to a token's vector and where, with its norm and its cosine to the sum it is added to.

    In a recurrent model nothing is added up: there are only the states that one token's step goes through."""
    trace = held.trace
    at(trace.source if side == "source" else trace.target, side, position)
    begin, stack = STACKS[side]
    sums = [name for name in trace.names if re.fullmatch(rf"{begin}\.sum|{stack}\.\d+\.resid\d", name)]
    if not any("resid" in name for name in sums):
        states = rf"{begin}\.embed|{stack}\.\d+\.h" + (
            r"|attn\.joined|out\.mixed|out\.readout" if side == "target" else ""
        )
        passed = [name for name in trace.names if re.fullmatch(states, name)]
        return {"contributions": [], "residuals": [_long(trace[name][position], name) for name in passed]}
    added = []
    for name in sums:
        own = f"{name}.own"  # a sum that was patched: what the model itself made of it
        before, *more = trace.operation(own if own in trace.names else name).inputs
        for part in more:
            vector, whole = trace[part][position], trace[before][position]
            cosine = float(F.cosine_similarity(vector, whole, dim=0))
            added.append({"at": part, "norm": float(vector.norm()), "cosine": cosine, "into": name})
    return {"contributions": added, "residuals": [_long(trace[name][position], name) for name in sums]}


def _long(vector: Tensor, name: str) -> dict[str, Any]:
    return {"at": name, "norm": float(vector.norm())}
