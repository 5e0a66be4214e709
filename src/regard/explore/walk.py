"""Walk: one token's vector through the model; how long it is, and how much each block adds to it."""

from __future__ import annotations

from typing import Any

from regard.explore.space import check_place
from regard.explore.traces import Held
from regard.trace.residual_analysis import residual_contributions, residual_norms


def walk(held: Held, side: str, position: int) -> dict[str, Any]:
    """What is added to a token's vector and where, with its norm and its cosine to the sum it is added to.

    In a recurrent model nothing is added up: there are only the states that one token's step goes through."""
    check_place(held.trace, side, position)
    added = [
        {"at": one.name, "norm": one.norm, "cosine": one.cosine, "into": one.into}
        for one in residual_contributions(held.trace, side, position)
    ]
    residuals = [{"at": name, "norm": norm} for name, norm in residual_norms(held.trace, side, position).items()]
    return {"contributions": added, "residuals": residuals}
