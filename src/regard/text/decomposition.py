"""Automatic choice between composed characters (NFC) and their letters, marks and jamo (NFD).

A character that is rare in the training data is learned badly, and one that does not occur is
unknown. Decomposed, it shares its parts with frequent characters: é has e and ◌́, 한 has three of 67
jamo. The choice is by the share of texts that have a rare composed character; it is estimated from
the training texts themselves, each of which is compared with all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.errors import choose
from regard.text.regard_vocabulary import nfc, nfd
from regard.text.tags import NO_TAGS, TagSet

RARE = 5  # other texts with a character, below which it is rare
# Share of texts with a rare composed character. In small runs of 3,600 words (400 steps, word error
# rate on dev), decomposing Korean (26 % of words) gave 28.4 instead of 48.0, French (0.2 %) 38.0
# instead of 32.7, Vietnamese (0.2 %) 16.9 instead of 16.0 and Greek (0.2 %) 29.1 instead of 33.3.
MIN_SHARE = 0.1
MIN_HANGUL_SHARE = 0.02  # jamo are the letters of this script
HANGUL = range(0xAC00, 0xAC00 + 11_172)
DECOMPOSITIONS = dict.fromkeys(("auto", "none", "nfd"))


@dataclass(frozen=True)
class Decomposition:
    """Whether characters are decomposed, and the reason (empty if there are none to decompose)."""

    decompose: bool
    reason: str = ""
    composed: frozenset[str] = frozenset()  # those that occur, of a side of `characters`


def choose_decomposition(
    lines: Iterable[str],
    requested: str = "auto",
    *,
    kind: str = "characters",
    tags: TagSet = NO_TAGS,
) -> Decomposition:
    """The decomposition for the lines of one side. Only `characters` are decomposed automatically:
    words and subwords are larger than a character, and bytes are smaller."""
    choose(DECOMPOSITIONS, requested, "decomposition")
    if requested == "none":
        return Decomposition(False)
    if requested == "nfd":
        return Decomposition(True, "as requested")
    if kind != "characters":
        return Decomposition(False)
    texts = [set(tags.strip(nfc(line))) for line in lines]
    found = Counter(character for text in texts for character in text)
    composed = {character for character in found if nfd(character) != character}
    if not composed:
        return Decomposition(False)
    share = _rare_share(texts, found, composed)
    decomposed = [set(nfd("".join(text))) for text in texts]
    parts = Counter(part for text in decomposed for part in text)
    left = _rare_share(decomposed, parts, set(nfd("".join(composed))))
    needed = MIN_HANGUL_SHARE if _are_syllables(composed) else MIN_SHARE
    decompose = share >= needed and left <= share / 2
    reason = _explain(found, composed, share, len(parts))
    return Decomposition(decompose, reason, frozenset(composed))


def _rare_share(
    texts: Sequence[set[str]], counts: Counter[str], characters: Iterable[str]
) -> float:
    """The share of texts with one of these characters that fewer than RARE other texts have."""
    rare = {character for character in characters if counts[character] - 1 < RARE}
    return sum(not rare.isdisjoint(text) for text in texts) / max(1, len(texts))


def _are_syllables(composed: set[str]) -> bool:
    """Whether these are Hangul syllables, with few exceptions."""
    return sum(ord(character) in HANGUL for character in composed) > 0.9 * len(composed)


def _explain(found: Counter[str], composed: set[str], share: float, parts: int) -> str:
    what = f"{len(composed):,} composed character{'s' * (len(composed) != 1)}"
    into = "letters and marks"
    if _are_syllables(composed):
        into = "jamo"
        what = f"{len(composed):,} of {len(HANGUL):,} possible syllables"
    occur = "occurs" if len(composed) == 1 else "occur"
    seen = f"{what} {occur}, {100 * share:.1f} % of texts have a rare one"
    return f"{seen}; {len(found):,} characters become {parts:,} {into}"
