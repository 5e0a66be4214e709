"""Space: where tokens lie among all others of their vocabulary. Neighbours by cosine, and a plane by PCA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.explore.describe import tokens
from regard.explore.refusals import invalid
from regard.explore.traces import Held
from regard.trace import residual_analysis as spaces

if TYPE_CHECKING:
    from regard.text.tokenizers import Tokenizer
    from regard.trace import Trace


def neighbours(held: Held, side: str, position: int, n: int) -> dict[str, Any]:
    """The tokens whose embeddings point most nearly where this one's does."""
    trace, label = held.trace, _tokenizer(held, side).label
    check_place(trace, side, position)
    near = spaces.neighbours(trace, side, position, n)
    found = [{"id": id, "text": label(id), "cosine": cosine} for id, cosine in near]
    return {"token": tokens(trace.pieces(side))[position], "neighbours": found}


def space(held: Held, side: str) -> dict[str, Any]:
    """The vocabulary on the plane of its greatest variance; of a large one, the tokens and what lies around them."""
    label, here = _tokenizer(held, side).label, dict[int, list[int]]()
    for position, piece in enumerate(held.trace.pieces(side)):
        here.setdefault(piece.id, []).append(position)
    ids, places, explained = spaces.pca_projection(held.trace, side)
    points = [
        {"id": id, "text": label(id), "x": x, "y": y, "here": here.get(id, [])}
        for id, (x, y) in zip(ids, places.tolist(), strict=True)
    ]
    return {"points": points, "explained": list(explained)}


def check_place(trace: Trace, side: str, position: int) -> None:
    """Refuse a position that is not there."""
    try:
        trace.piece(side, position)
    except RegardError as error:
        raise invalid(str(error), "out-of-range") from None


def _tokenizer(held: Held, side: str) -> Tokenizer:
    bundle = held.model.pipeline.bundle
    return bundle.source if side == "source" else bundle.target
