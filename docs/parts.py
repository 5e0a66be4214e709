"""Writes docs/parts.md: every part of attention with its formula, its paper, its options, and who can run it.

python docs/parts.py
"""

import inspect
from pathlib import Path
from typing import Any

from regard.attention import BACKENDS, MASKS, NORMALISERS, SCORES, Attention, Mask
from regard.positions import POSITIONS, Biasing, position

PAGE = Path(__file__).with_name("parts.md")
HEADS, DIM = 4, 8
GIVEN = {"heads", "dim", "width", "causal"}  # what the model says, not the user

HEAD = """# The parts of attention

`weights = normalise(score(queries, keys) + bias)`, `output = weights · values`, over the keys a mask allows.

This page is written by `python docs/parts.py` from the parts themselves, and a test keeps it true. s is a score, q a
query, k a key, d the dimension of one head, h a head, p a position. "Runs on" lists the backends beside `reference`,
which runs everything; `auto` picks the fastest that can, by a table of what was measured (`regard bench` prints yours).
"""


def options(kind: type) -> str:
    """The options of a part, with their defaults."""
    shown = []
    given = set() if issubclass(kind, Mask) else GIVEN
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in given and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            shown.append(name if parameter.default is parameter.empty else f"{name}={parameter.default!r}")
    return ", ".join(f"`{option}`" for option in shown) or "–"


def runs_on(attention: Attention) -> str:
    """The backends that can run this attention."""
    can = [name for name, backend in BACKENDS.items() if name != "reference" and not backend.cannot(attention, None)]
    return ", ".join(f"`{name}`" for name in can) or "–"


def row(name: str, kind: Any, *more: str) -> str:
    """One line of a table."""
    about = inspect.getdoc(kind).split("\n")[0]
    cells = [f"`{name}`", about, f"`{kind.formula}`", kind.paper, options(kind), *more]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(title: str, about: str, rows: list[str], *more: str) -> str:
    """One kind of part."""
    heads = ["name", "what it is", "formula", "paper", "options", *more]
    return "\n".join([f"## {title}\n", about + "\n", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *rows])


def placed(name: str) -> tuple[str, str]:
    """Where a position acts, and the backends that can run an attention with it."""
    made = position(name, width=32, heads=HEADS, dim=DIM, causal=False)
    bias = made if isinstance(made, Biasing) else None
    return made.place, runs_on(Attention(SCORES["scaled-dot"](HEADS, DIM), bias=bias))


def page() -> str:
    """The whole page."""
    scores = [row(n, kind, runs_on(Attention(kind(HEADS, DIM)))) for n, kind in SCORES.items()]
    masks = [row(n, kind, runs_on(Attention(SCORES["scaled-dot"](HEADS, DIM)))) for n, kind in MASKS.items()]
    normalisers = [
        row(n, kind, runs_on(Attention(SCORES["scaled-dot"](HEADS, DIM), normaliser=n)))
        for n, kind in NORMALISERS.items()
    ]
    positions = [row(n, kind, *placed(n)) for n, kind in POSITIONS.items()]
    return (
        "\n\n".join(
            [
                HEAD.strip(),
                table("Scores", "How a query is compared with a key; both come projected.", scores, "runs on"),
                table("Masks", "Which keys a query may see; joined by `&` and `|`.", masks, "runs on"),
                table("Normalisers", "From scores to weights.", normalisers, "runs on"),
                table(
                    "Positions",
                    "Where tokens stand: *added* to embeddings, *turning* queries and keys, or *biasing* scores (these "
                    "are the biases of the formula).",
                    positions,
                    "acts",
                    "runs on",
                ),
            ]
        )
        + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
