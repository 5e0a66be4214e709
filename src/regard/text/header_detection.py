"""Header detection: is the first row of a table unlike the rows below it?

A row of known header words in any of twenty languages is a header. Otherwise each column votes: a
name above numbers, another script, symbols that never recur, a capitalised phrase above single
words. Without enough evidence the row is data, because a plain file of pairs has no header.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.errors import shorten
from regard.text.writing_systems import script_of

MIN_ROWS = 3  # below the first one, for a decision by content


def _read_words() -> dict[str, frozenset[str]]:
    """The words of header_words.txt by section."""
    text = Path(__file__).with_name("header_words.txt").read_text(encoding="utf-8")
    sections = re.findall(r"^\[(\w+)\]\n([^\[]*)", text, re.MULTILINE)
    return {name: frozenset(words.casefold().split()) for name, words in sections}


WORDS = _read_words()
SOURCE_NAMES, TARGET_NAMES = WORDS["source"], WORDS["target"]
HEADER_WORDS = SOURCE_NAMES | TARGET_NAMES | WORDS["other"]
NUMBER = re.compile(r"[-+]?\d[\d.,:/ -]*%?")
WORD = re.compile(r"[^\W\d_]+")


class HeaderDecision(NamedTuple):
    """Whether the first row is a header, and the reason (empty if nothing suggests one)."""

    header: bool
    reason: str = ""


def detect_header(rows: Sequence[Sequence[str]]) -> HeaderDecision:
    """Decide whether the first of these rows is a header."""
    first = [cell.strip() for cell in rows[0]]
    cells = [cell for cell in first if cell]
    if not cells or len(rows) < 2 or len({cell.casefold() for cell in cells}) < len(cells):
        return HeaderDecision(False)  # column names are different from each other
    columns = [_column(rows[1:], i) for i in range(len(first))]
    recurs = [cell in column for cell, column in zip(first, columns, strict=True) if cell]
    known = [is_header_word(cell) for cell in cells]
    if all(known) and not all(recurs):
        return HeaderDecision(True, "all its cells are known header words")
    if any(recurs):
        return HeaderDecision(False)  # a name rarely recurs as data
    votes = [unlike_column(cell, column) for cell, column in zip(first, columns, strict=True)]
    strengths = [vote[0] for cell, vote in zip(first, votes, strict=True) if cell]
    reason = max(votes, key=lambda vote: vote[0])[1]
    decisive = max(strengths) == 3
    several = min(strengths) > 0 and max(strengths) > 1
    some_known = any(known) and all(
        is_known or strength for is_known, strength in zip(known, strengths, strict=True)
    )
    if decisive or several:
        return HeaderDecision(True, reason)
    if some_known:
        return HeaderDecision(True, f"{shorten(cells[known.index(True)])} is a known header word")
    return HeaderDecision(False, reason if min(strengths) > 0 or any(known) else "")


def is_header_word(cell: str) -> bool:
    """Whether every word of a cell is a known header word: `source_text`, "Historisk form"."""
    words = WORD.findall(cell.casefold())
    return bool(words) and all(word in HEADER_WORDS for word in words)


def unlike_column(cell: str, column: Sequence[str]) -> tuple[int, str]:
    """How much a cell differs from the column below it: 0 not, 1 weakly, 2 strongly, 3 decisively;
    and the difference in words."""
    column = [text for text in column if text]
    if not cell or len(column) < MIN_ROWS:
        return 0, ""
    if all(map(NUMBER.fullmatch, column)):
        return (
            (0, "")
            if NUMBER.fullmatch(cell)
            else (3, f"{shorten(cell)} is above a column of numbers")
        )
    scripts = {script for text in column for character in text if (script := script_of(character))}
    own = {script for character in cell if (script := script_of(character))}
    if own and scripts and not own & scripts:
        return 2, f"{shorten(cell)} is in another script than the cells below it"
    if _never_recurs(cell, column):
        return 3, f"the symbols of {shorten(cell)} never recur in a column where others do"
    phrase = len(cell.split()) > 1 and _share(column, lambda text: len(text.split()) == 1) > 0.97
    lower = _share(column, lambda text: text[:1].islower()) > 0.95 and cell[:1].isupper()
    upper = _share(column, str.isupper) > 0.95 and not cell.isupper() and cell.upper() != cell
    odd = any(mark in cell and not any(mark in text for text in column) for mark in "_()/:#")
    if (lower or upper) and phrase:
        return 2, f"{shorten(cell)} is a capitalised phrase above single words"
    if phrase or lower or upper or odd:
        return 1, f"{shorten(cell)} is written unlike the cells below it"
    return 0, ""


def _never_recurs(cell: str, column: Sequence[str]) -> bool:
    """Whether a cell has longer symbols than, and none of, a column over a closed set of them."""
    if _share(column, lambda text: len(text.split()) > 1) < 0.9 or len(column) < 10:
        return False
    counts = Counter(symbol for text in column for symbol in set(text.split()))
    closed = _share(column, lambda text: all(counts[symbol] > 1 for symbol in text.split()))
    longest = max(map(len, counts))
    unlike = any(len(symbol) > longest for symbol in cell.split())
    return closed > 0.8 and unlike and not any(symbol in counts for symbol in cell.split())


def _share(texts: Sequence[str], test: Callable[[str], bool]) -> float:
    return sum(map(test, texts)) / max(1, len(texts))


def _column(rows: Sequence[Sequence[str]], index: int) -> list[str]:
    return [row[index].strip() for row in rows if index < len(row)]
