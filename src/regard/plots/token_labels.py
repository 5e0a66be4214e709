"""Labels of rows and columns: tokens, decoder steps, and the tokens of a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.errors import ShapeError
from regard.text import BEGIN, END, UNKNOWN
from regard.text.tokenizers import SPECIAL_TOKENS
from regard.trace import AttentionBlock, Trace

_VISIBLE = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"})
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_LONGEST = 20


def token_labels(tokens: Sequence[str]) -> list[str]:
    """Tokens; a repeated token also carries its position: the₀ man hit the₃ car."""
    texts = [visible(token) for token in tokens]
    count = Counter(texts)
    return [
        text if count[text] == 1 else text + str(position).translate(_SUBSCRIPTS)
        for position, text in enumerate(texts)
    ]


def step_labels(prefix: Sequence[str], predicted: Sequence[str]) -> list[str]:
    """The rows of a decoder: the token fed in and the token it predicted, "after the → Hund"."""
    if len(prefix) != len(predicted):
        raise ShapeError(
            f"each token fed in predicts one; got {len(prefix)} fed in and {len(predicted)} "
            "predicted"
        )
    pairs = zip(token_labels(prefix), predicted, strict=True)
    return [f"after {before} → {visible(after)}" for before, after in pairs]


def visible(token: str) -> str:
    """A token with its blanks shown, and its middle left out when it is very long."""
    shown = token.translate(_VISIBLE) or "∅"
    if len(shown) <= _LONGEST:
        return shown
    half = (_LONGEST - 1) // 2
    return f"{shown[:half]}…{shown[-half:]}"


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
    return (
        token_labels(texts(trace, side))
        if following is None
        else step_labels(texts(trace, side), following)
    )


def row_label(trace: Trace, side: str, position: int) -> str:
    """One token, checked to be there."""
    trace.piece(side, position)
    return row_labels(trace, side)[position]


def allowed(trace: Trace, one: AttentionBlock) -> Bool[Tensor, "head query key"]:
    """Where an attention may attend: where scores are finite, or an edit set a weight."""
    weights, masked = trace[f"{one.name}.weights"], f"{one.name}.masked"
    if masked not in trace.names:
        return torch.ones(weights.shape, dtype=torch.bool)
    return trace[masked].isfinite() | (weights != 0)
