"""What stands beside the rows of a picture of a trace, and where its attentions may look."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.plots.labels import step_labels, token_labels
from regard.text import BEGIN, END, UNKNOWN
from regard.text.tokenizers import SPECIAL_TOKENS
from regard.trace import AttentionBlock, Trace

SIGNS = {SPECIAL_TOKENS[BEGIN]: "▶", SPECIAL_TOKENS[END]: "■", SPECIAL_TOKENS[UNKNOWN]: "<unknown>"}


def texts(trace: Trace, side: str) -> list[str]:
    """The tokens of a side as they look."""
    return [spelled(piece.text) for piece in trace.pieces(side)]


def spelled(text: str) -> str:
    """A token as it looks; begin and end have signs, as on the page."""
    return SIGNS.get(text, text)


def predicted(trace: Trace, side: str) -> list[str] | None:
    """What follows each row of the target; the source predicts nothing."""
    return [spelled(piece.text) for piece in trace.following] if side == "target" else None


def row_labels(trace: Trace, side: str) -> list[str]:
    """Each token of the source; of the target also what follows it, "after the → Hund"."""
    following = predicted(trace, side)
    return token_labels(texts(trace, side)) if following is None else step_labels(texts(trace, side), following)


def row_label(trace: Trace, side: str, position: int) -> str:
    """One token, checked to be there."""
    trace.piece(side, position)
    return row_labels(trace, side)[position]


def allowed(trace: Trace, one: AttentionBlock) -> Bool[Tensor, "head query key"]:
    """Where an attention may look: not where its scores are −∞, unless a weight was put there by hand."""
    weights, masked = trace[f"{one.name}.weights"], f"{one.name}.masked"
    if masked not in trace.names:
        return torch.ones(weights.shape, dtype=torch.bool)
    return trace[masked].isfinite() | (weights != 0)
