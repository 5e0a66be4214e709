"""What is written beside rows and columns. A token's identity is its position, not its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from regard.errors import ShapeError

_VISIBLE = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"})
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_LONGEST = 20


def token_labels(tokens: Sequence[str]) -> list[str]:
    """Each token as it is; one that stands there more than once also carries its position: the₀ man hit the₃ car."""
    texts = [visible(token) for token in tokens]
    count = Counter(texts)
    return [
        text if count[text] == 1 else text + str(position).translate(_SUBSCRIPTS) for position, text in enumerate(texts)
    ]


def step_labels(prefix: Sequence[str], predicted: Sequence[str]) -> list[str]:
    """The rows of a decoder: the token fed in and the token it predicted, "after the → Hund"."""
    if len(prefix) != len(predicted):
        raise ShapeError(f"each token fed in predicts one; got {len(prefix)} fed in and {len(predicted)} predicted")
    pairs = zip(token_labels(prefix), predicted, strict=True)
    return [f"after {before} → {visible(after)}" for before, after in pairs]


def visible(token: str) -> str:
    """A token with its blanks shown, and its middle left out when it is very long."""
    shown = token.translate(_VISIBLE) or "∅"
    if len(shown) <= _LONGEST:
        return shown
    half = (_LONGEST - 1) // 2
    return f"{shown[:half]}…{shown[-half:]}"
