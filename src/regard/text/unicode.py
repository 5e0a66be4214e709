"""NFC, and where every character of a normalised text came from."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable


def nfc(text: str) -> str:
    """The text in Unicode's composed form: e + ◌́ becomes é (Unicode Standard Annex 15)."""
    return unicodedata.normalize("NFC", text)


def origins(text: str, normalise: Callable[[str], str] = nfc) -> list[tuple[int, int]]:
    """For each character of `normalise(text)`, the stretch (start, end) of `text` that it came from.

    The text is cut wherever both sides normalise independently; all characters of one cut share its stretch.
    """
    if normalise(text) == text:
        return [(i, i + 1) for i in range(len(text))]
    stretches: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or _separate(text[start:end], text[end], normalise):
            stretches += [(start, end)] * len(normalise(text[start:end]))
            start = end
    return stretches


def _separate(before: str, character: str, normalise: Callable[[str], str]) -> bool:
    """Whether `character` neither joins `before` nor trades places with its marks."""
    if unicodedata.combining(character):
        return False
    return normalise(before + character) == normalise(before) + normalise(character)
