"""Writes docs/parts.md: every part of attention with formula, paper, options and backends.

python docs/scripts/build.py --pages
"""

import inspect
from pathlib import Path
from typing import Any

from regard.attention import BACKENDS, MASKS, NORMALISERS, SCORES, Attention, Mask
from regard.positions import POSITIONS, BiasPosition, position

PAGE = Path(__file__).parents[1] / "parts.md"
HEADS, DIM = 4, 8
FROM_MODEL = {"heads", "dim", "width", "causal"}  # arguments that the model supplies

HEAD = """# The parts of attention

`weights = normalise(score(queries, keys) + bias)`, `output = weights · values`, over the allowed
keys.

`python docs/scripts/build.py --pages` generates this page from the code, and a test keeps it up to
date. s is a score, q a query, k a key, d the dimension of one head, h a head, p a position.
"Backends" lists those that support the part beside `reference`, which supports everything. `auto`
picks the fastest from a table of measurements; `regard bench` measures your machine.
"""


def options(kind: type) -> str:
    """The options of a part, with their defaults."""
    shown = []
    hidden = set() if issubclass(kind, Mask) else FROM_MODEL
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in hidden and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            shown.append(
                name if parameter.default is parameter.empty else f"{name}={parameter.default!r}"
            )
    return ", ".join(f"`{option}`" for option in shown) or "–"


def backends(attention: Attention) -> str:
    """The backends that support this attention."""
    can = [
        name
        for name, backend in BACKENDS.items()
        if name != "reference" and not backend.cannot(attention, None)
    ]
    return ", ".join(f"`{name}`" for name in can) or "–"


def row(name: str, kind: Any, *more: str) -> str:
    """One line of a table."""
    about = inspect.getdoc(kind).split("\n")[0]
    cells = [f"`{name}`", about, f"`{kind.formula}`", kind.paper, options(kind), *more]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(title: str, about: str, rows: list[str], *more: str) -> str:
    """The table of one kind of part."""
    heads = ["name", "what it is", "formula", "paper", "options", *more]
    return "\n".join(
        [
            f"## {title}\n",
            about + "\n",
            "| " + " | ".join(heads) + " |",
            "|---" * len(heads) + "|",
            *rows,
        ]
    )


def place_and_backends(name: str) -> tuple[str, str]:
    """Where a position encoding acts, and the backends that support it."""
    made = position(name, width=32, heads=HEADS, dim=DIM, causal=False)
    bias = made if isinstance(made, BiasPosition) else None
    return made.place, backends(Attention(SCORES["scaled-dot"](HEADS, DIM), bias=bias))


def page() -> str:
    """The whole page."""
    scores = [row(n, kind, backends(Attention(kind(HEADS, DIM)))) for n, kind in SCORES.items()]
    masks = [
        row(n, kind, backends(Attention(SCORES["scaled-dot"](HEADS, DIM))))
        for n, kind in MASKS.items()
    ]
    normalisers = [
        row(n, kind, backends(Attention(SCORES["scaled-dot"](HEADS, DIM), normaliser=n)))
        for n, kind in NORMALISERS.items()
    ]
    positions = [row(n, kind, *place_and_backends(n)) for n, kind in POSITIONS.items()]
    return (
        "\n\n".join(
            [
                HEAD.strip(),
                table(
                    "Scores", "Compare a projected query with a projected key.", scores, "backends"
                ),
                table(
                    "Masks",
                    "Which keys a query may attend to. Combine masks with `&` and `|`.",
                    masks,
                    "backends",
                ),
                table("Normalisers", "Turn scores into weights.", normalisers, "backends"),
                table(
                    "Positions",
                    "Encode token positions: *added* to embeddings, *rotating* queries and keys, "
                    "or *biasing* "
                    "scores (the bias of the formula).",
                    positions,
                    "acts",
                    "backends",
                ),
            ]
        )
        + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
