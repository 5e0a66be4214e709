"""Tables as plain text: columns as wide as they must be, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

from regard.terminal import sanitize

LONGEST = 60


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Rows under a head; the first `left` columns are words and stand left, the others are numbers and stand right."""
    from rich.cells import cell_len

    cells = [[_short(cell) for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(head))]

    def padded(text: str, place: int) -> str:
        room = " " * (widths[place] - cell_len(text))
        return text + room if place < left else room + text

    return "\n".join("  " + "  ".join(padded(text, i) for i, text in enumerate(row)).rstrip() for row in cells)


def _short(text: str) -> str:
    text = sanitize(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
