"""The texts a tokenizer was made for: their alphabet and their case.

Pages and commands show it, and repair typed texts that differ only in case.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

from regard.text.tokenizers import SPECIAL_TOKENS, Tokenizer, nfc, nfd

MAX_ALPHABET = 256  # characters; a larger alphabet is not listed
JAMO = frozenset(map(chr, range(0x1100, 0x1200)))  # conjoining
Case = Literal["lower", "upper", "any"]
CASES: tuple[Case, ...] = ("lower", "upper", "any")


def describe_input(tokenizer: Tokenizer, texts: Iterable[str] = ()) -> dict[str, Any]:
    """The alphabet and the case of a vocabulary and of some texts that it was made for.

    `alphabet` is None if it has more than 256 characters, or if nothing is known about it: a
    vocabulary that spells in bytes can spell every text."""
    known = vocabulary_characters(tokenizer).union(*map(set, texts))
    known = {character for character in known if character.isprintable()}
    if not known:
        return {"alphabet": None, "case": "any"}
    alphabet = "".join(sorted(known)) if len(known) <= MAX_ALPHABET else None
    return {"alphabet": alphabet, "case": case_of(known)}


def case_of(characters: Iterable[str]) -> Case:
    """Lower or upper, if the letters have only this case; otherwise any."""
    known = set(characters)
    lower = any(one.islower() and one.upper() != one for one in known)
    upper = any(one.isupper() and one.lower() != one for one in known)
    if lower == upper:
        return "any"
    return "lower" if lower else "upper"


def vocabulary_characters(tokenizer: Tokenizer) -> set[str]:
    """All characters of the tokens of a vocabulary of characters or words.

    Others can spell every text, so that their tokens do not tell."""
    if tokenizer.kind not in ("characters", "words"):
        return set()
    labels = (tokenizer.label(id) for id in range(len(SPECIAL_TOKENS), len(tokenizer)))
    separator = {" "} if tokenizer.kind == "words" else set()
    found = separator.union(*map(set, labels))
    return compose_all(found) if tokenizer.is_decomposed else found


def compose_all(parts: set[str]) -> set[str]:
    """The characters that decompose into some of these letters, marks and jamo; a mark or jamo
    that only occurs within others is left out."""
    composed = {one for one, whole in composed_characters().items() if whole <= parts}
    within = {part for part in parts if unicodedata.combining(part) or part in JAMO}
    return (parts - within) | composed


@cache
def composed_characters() -> dict[str, frozenset[str]]:
    """All characters with a canonical decomposition, and its parts."""
    both = ((one, nfd(one)) for one in map(chr, range(0x10000)) if not 0xD800 <= ord(one) < 0xE000)
    return {one: frozenset(parts) for one, parts in both if nfc(parts) == one != parts}


def vocabulary_text(tokenizer: Tokenizer, *, scan: int = 4096) -> str:
    """A readable text without unknown tokens: the longest word among the first tokens, or some
    characters of a vocabulary that has no words."""
    labels = [tokenizer.label(id).strip() for id in range(min(len(tokenizer), scan))]
    if tokenizer.kind == "characters":
        labels = [one for one in labels if len(one) == 1]  # others are tags
    words = [one for one in labels if one.isalpha() and _is_known(tokenizer, one)]
    longest = max(words, key=len, default="")
    if len(longest) > 1:
        return longest
    return "".join(words[:6]) or next((one for one in labels if _is_known(tokenizer, one)), "")


def _is_known(tokenizer: Tokenizer, text: str) -> bool:
    ids = tokenizer.encode(text)
    return bool(ids) and tokenizer.unknown not in ids
