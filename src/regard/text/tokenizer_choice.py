"""Looks at one side of a corpus, chooses its tokeniser and says why."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from regard.errors import choose
from regard.text.tokenizer_training import TOKENIZERS
from regard.text.tokenizers import BYTES, SYMBOLS, TokenizerError
from regard.text.unicode import nfc

# Words of text up to which a vocabulary serves; what low-resource translation found best (Ding et al. 2019; Sennrich
# and Zhang 2019) at the small end, what large systems use at the other.
SIZES = ((100_000, 2_000), (1_000_000, 4_000), (5_000_000, 8_000), (50_000_000, 16_000))
LARGEST = 32_000
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI")


@dataclass(frozen=True)
class Choice:
    """A kind of tokeniser, its vocabulary size (None: as many as there are) and why, in a sentence."""

    kind: str
    size: int | None
    reason: str


def auto(lines: Iterable[str], *, total: int | None = None) -> Choice:
    """The tokeniser that suits these lines: a whole side, or a sample of a side of `total` lines."""
    side = Side([nfc(line) for line in lines], total)
    if not side.characters:
        raise TokenizerError("no text to choose a tokeniser by; give lines that are not empty")
    return next(choice for choice in (_symbols(side), _characters(side), _subwords(side)) if choice)


def default_size(kind: str, lines: Iterable[str], *, total: int | None = None) -> int | None:
    """The vocabulary size of a kind that a person chose: by the amount of text for pieces, None for the others."""
    choose(TOKENIZERS, kind, "tokeniser")
    if kind not in ("bpe", "unigram"):
        return None
    return _size(Side([nfc(line) for line in lines], total))


class Side:
    """What there is to know of one side of a corpus from its lines."""

    def __init__(self, lines: list[str], total: int | None) -> None:
        self.lines = lines
        self.total = max(len(lines), total or 0)
        self.characters = Counter(chain.from_iterable(lines))
        self.symbols = Counter(chain.from_iterable(map(str.split, lines)))

    @cached_property
    def length(self) -> float:
        """Characters to a line."""
        return self.characters.total() / len(self.lines)

    @cached_property
    def count(self) -> float:
        """Space-separated symbols to a line."""
        return self.symbols.total() / len(self.lines)

    @cached_property
    def unseen(self) -> float:
        """The chance that the next symbol is a new one: those seen once over all (Good and Turing's estimate)."""
        return sum(count == 1 for count in self.symbols.values()) / max(1, self.symbols.total())

    @cached_property
    def unspaced(self) -> bool:
        """Whether the writing puts no spaces between its words."""
        letters = {c: n for c, n in self.characters.items() if c.isalpha()}
        bare = sum(n for c, n in letters.items() if unicodedata.name(c, "").startswith(UNSPACED))
        return bare > 0.3 * max(1, sum(letters.values()))

    @property
    def said(self) -> str:
        """How much was looked at."""
        if len(self.lines) == self.total:
            return f"{self.total:,} line{'s' * (self.total != 1)}"
        return f"{len(self.lines):,} of {self.total:,} lines"


def _symbols(side: Side) -> Choice | None:
    """A closed set of symbols between spaces: phones, tags, actions, spelt-out letters."""
    distinct, used = len(side.symbols), side.symbols.total()
    if side.count < 1.5 or distinct < 2:
        return None
    width = sum(len(symbol) * count for symbol, count in side.symbols.items()) / used
    numbers = sum(count for symbol, count in side.symbols.items() if symbol.isdecimal() and len(symbol) > 1)
    closed = distinct <= 2_000 and side.unseen <= 0.01
    short = distinct <= 500 and side.unseen <= 0.1 and width <= 2.5
    spelt = width <= 1.2 and distinct <= 20_000
    if numbers > 0.05 * used or not (closed or short or spelt):
        return None
    reason = f"{distinct:,} different space-separated symbols in {side.said}, so each is one token"
    return Choice("words", None, f"words: {reason}")


def _characters(side: Side) -> Choice | None:
    """Short things, such as words and names; or too little text to learn pieces from."""
    distinct = len(side.characters)
    amount = side.length * side.total
    held = f"lines average {side.length:.1f} characters and hold {distinct:,} different ones"
    running = side.length > 24 or side.count >= 4 or (side.unspaced and distinct > 200 and side.length > 10)
    if not running:
        return Choice("characters", None, f"characters: {held}")
    if amount < 50_000 and distinct < 1_000:
        return Choice("characters", None, f"characters: {held}; {side.said} are too little text to learn pieces from")
    return None


def _subwords(side: Side) -> Choice:
    """Running text."""
    size = _size(side)
    spaces = "without spaces between words" if side.unspaced else f"of {side.count:.1f} words to a line"
    amount = f"about {_rounded(_words(side)):,} words in all"
    return Choice("bpe", size, f"bpe of {size:,}: {side.said} of running text {spaces}, {amount}")


def _words(side: Side) -> float:
    """Words in the whole side; where no spaces tell, a word is taken to have two and a half characters."""
    return side.total * (side.length / 2.5 if side.unspaced else side.count)


def _size(side: Side) -> int:
    if not side.lines:
        return SIZES[0][1]
    words = _words(side)
    size = next((size for most, size in SIZES if words <= most), LARGEST)
    # Writing with thousands of characters needs room for them and as much again for pieces.
    needed, seen, enough = 0, 0, 0.999 * side.characters.total()
    for _, count in side.characters.most_common():
        if seen >= enough:
            break
        needed, seen = needed + 1, seen + count
    room = len(SYMBOLS) + len(BYTES) + 2 * needed
    return max(size, next((size for _, size in SIZES if size >= room), LARGEST))


def _rounded(number: float) -> int:
    """Two leading digits, for people."""
    digits = max(0, len(str(int(number))) - 2)
    return int(round(number, -digits))
