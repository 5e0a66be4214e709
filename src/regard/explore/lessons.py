"""The explorer's lessons by number, for `regard lesson`; the page has the same list."""

from __future__ import annotations

from regard.errors import UnknownName

LESSONS = {
    "1": "Pooling as regression",
    "2": "King and queen",
    "3": "Bank of the river",
    "4": "Three spaces",
    "5": "Why divide by √d",
    "6": "The man hit the car",
    "7": "Five ways to encode positions",
    "8": "The bottleneck and Bahdanau",
    "9": "Masks and heads",
    "10": "Is attention an explanation?",
    "A": "Appendix: greedy and beam search",
}


def lesson_address(number: str) -> str:
    """The page of a lesson, as the part of an address after the server's name."""
    key = number.strip().upper()
    if key not in LESSONS:
        wanted = f"choose one of {', '.join(LESSONS)}, or `regard lesson` for the list"
        raise UnknownName(f"unknown lesson {number!r}; {wanted}")
    return f"#/lessons?o.lesson={key}"


def lesson_table() -> str:
    """The lessons, one per line, with their numbers."""
    lines = [f"{number:>3}  {title}" for number, title in LESSONS.items()]
    return "\n".join(
        [*lines, "", "Open one with `regard lesson 1`; each takes about five minutes."]
    )
