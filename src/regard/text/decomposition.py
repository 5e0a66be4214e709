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
from typing import NamedTuple

from regard.errors import choose
from regard.text.regard_vocabulary import nfc, nfd
from regard.text.tags import NO_TAGS, TagSet

RARE = 5  # other texts with a character, below which it is rare
# Share of texts with a rare composed character. In small runs of 3,600 words (400 steps, word error
# rate on dev), decomposing Korean (26 % of words) gave 28.4 instead of 48.0, French (0.2 %) 38.0
# instead of 32.7, Vietnamese (0.2 %) 16.9 instead of 16.0 and Greek (0.2 %) 29.1 instead of 33.3.
MIN_SHARE = 0.1
MIN_HANGUL_SHARE = 0.02  # of the texts with Hangul: jamo are the letters of this script
MIN_HANGUL_TEXTS = 0.01  # share of texts with Hangul, below which it does not decide
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
    syllables = {character for character in composed if ord(character) in HANGUL}
    korean = [text for text in texts if not syllables.isdisjoint(text)]
    parts = Counter(part for text in texts for part in set(nfd("".join(text))))
    if len(korean) < MIN_HANGUL_TEXTS * len(texts):  # a few words in texts of another script
        korean = []
    shares = [
        _Share.of(korean, syllables, found, parts),
        _Share.of(texts, composed - syllables, found, parts),
    ]
    needed = MIN_HANGUL_SHARE, MIN_SHARE
    large = [share for share, least in zip(shares, needed, strict=True) if share.exceeds(least)]
    shown = (
        large[0]
        if large
        else max(shares, key=lambda share: (share.composed, len(share.characters)))
    )
    reason = _explain(found, shown, len(parts))
    return Decomposition(bool(large), reason, frozenset(composed))


class _Share(NamedTuple):
    """The share of some texts that have a rare composed character, and a rare part of one."""

    characters: set[str]
    composed: float
    decomposed: float

    @classmethod
    def of(
        cls,
        texts: Sequence[set[str]],
        characters: set[str],
        found: Counter[str],
        parts: Counter[str],
    ) -> _Share:
        split = [set(nfd("".join(text))) for text in texts]
        left = _rare_share(split, parts, set(nfd("".join(characters))))
        return cls(characters, _rare_share(texts, found, characters), left)

    def exceeds(self, least: float) -> bool:
        """Whether there are so many that decomposing helps."""
        return self.composed >= least and self.decomposed <= self.composed / 2


def _rare_share(
    texts: Sequence[set[str]], counts: Counter[str], characters: Iterable[str]
) -> float:
    """The share of texts with one of these characters that fewer than RARE other texts have."""
    rare = {character for character in characters if counts[character] - 1 < RARE}
    return sum(not rare.isdisjoint(text) for text in texts) / max(1, len(texts))


def _explain(found: Counter[str], share: _Share, parts: int) -> str:
    characters = share.characters
    what = f"{len(characters):,} composed character{'s' * (len(characters) != 1)}"
    into, texts = "letters and marks", "texts"
    if characters and all(ord(character) in HANGUL for character in characters):
        into, texts = "jamo", "texts with them"
        what = f"{len(characters):,} of {len(HANGUL):,} possible syllables"
    occur = "occurs" if len(characters) == 1 else "occur"
    seen = f"{what} {occur}, {100 * share.composed:.1f} % of {texts} have a rare one"
    return f"{seen}; {len(found):,} characters become {parts:,} {into}"
