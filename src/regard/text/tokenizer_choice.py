"""Automatic choice of the tokenizer for one side of a corpus, with the reason."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from regard.errors import choose
from regard.text.tags import NO_TAGS, TagSet
from regard.text.tokenizer_training import TOKENIZERS
from regard.text.tokenizers import BYTE_TOKENS, SPECIAL_TOKENS, TokenizerError, nfc

# (words of text, vocabulary size): small sizes as found best for low-resource translation (Ding et
# al. 2019; Sennrich and Zhang 2019), large ones as in large systems.
SIZES = ((100_000, 2_000), (1_000_000, 4_000), (5_000_000, 8_000), (50_000_000, 16_000))
LARGEST = 32_000
UNSPACED_SCRIPTS = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "YI",
)


@dataclass(frozen=True)
class TokenizerChoice:
    """A kind of tokenizer, its vocabulary size (None: all symbols) and the reason in a sentence."""

    kind: str
    size: int | None
    reason: str


def choose_tokenizer(
    lines: Iterable[str], *, total: int | None = None, tags: TagSet = NO_TAGS
) -> TokenizerChoice:
    """The tokenizer for these lines: a whole side, or a sample of a side of `total` lines. Markup
    and `tags` do not count as text."""
    lines = [nfc(line) for line in lines]
    side = SideStats([tags.strip(line) for line in lines], total)
    if not side.characters:
        side = SideStats(lines, total)  # nothing but tags
    if not side.characters:
        raise TokenizerError("no text to choose a tokenizer from; give lines that are not empty")
    words = _choose_words(side, tagged=bool(tags.fields))
    return words or _choose_characters(side) or _choose_subwords(side)


def default_vocabulary_size(
    kind: str, lines: Iterable[str], *, total: int | None = None
) -> int | None:
    """The vocabulary size of a given kind: by the amount of text for subwords, else None."""
    choose(TOKENIZERS, kind, "tokenizer")
    if kind not in ("bpe", "unigram"):
        return None
    return _subword_size(SideStats([nfc(line) for line in lines], total))


class SideStats:
    """Statistics of one side of a corpus."""

    def __init__(self, lines: list[str], total: int | None) -> None:
        self.lines = lines
        self.total = max(len(lines), total or 0)
        self.characters = Counter(chain.from_iterable(lines))
        self.symbols = Counter(chain.from_iterable(map(str.split, lines)))

    @cached_property
    def characters_per_line(self) -> float:
        """Mean characters per line."""
        return self.characters.total() / len(self.lines)

    @cached_property
    def symbols_per_line(self) -> float:
        """Mean space-separated symbols per line."""
        return self.symbols.total() / len(self.lines)

    @cached_property
    def unseen(self) -> float:
        """The probability that the next symbol is new (Good–Turing estimate)."""
        once = sum(count == 1 for count in self.symbols.values())
        return once / max(1, self.symbols.total())

    @cached_property
    def unspaced(self) -> bool:
        """Whether the script does not separate words by spaces."""
        letters = {c: n for c, n in self.characters.items() if c.isalpha()}
        unspaced = sum(
            n for c, n in letters.items() if unicodedata.name(c, "").startswith(UNSPACED_SCRIPTS)
        )
        return unspaced > 0.3 * max(1, sum(letters.values()))

    @property
    def description(self) -> str:
        """The number of lines that were examined."""
        if len(self.lines) == self.total:
            return f"{self.total:,} line{'s' * (self.total != 1)}"
        return f"{len(self.lines):,} of {self.total:,} lines"


def _choose_words(side: SideStats, *, tagged: bool) -> TokenizerChoice | None:
    """For a closed set of space-separated symbols: phones, tags, actions, spelled-out letters.
    Texts with tags are words to inflect or to translate, even if only some hundreds occur."""
    distinct, used = len(side.symbols), side.symbols.total()
    if side.symbols_per_line < 1.5 or distinct < 2:
        return None
    mean_length = sum(len(symbol) * count for symbol, count in side.symbols.items()) / used
    numbers = sum(
        count for symbol, count in side.symbols.items() if symbol.isdecimal() and len(symbol) > 1
    )
    closed = distinct <= 2_000 and side.unseen <= 0.01 and not tagged
    short = distinct <= 500 and side.unseen <= 0.1 and mean_length <= 2.5
    spelled = mean_length <= 1.2 and distinct <= 20_000
    if numbers > 0.05 * used or not (closed or short or spelled):
        return None
    counts = f"{distinct:,} different space-separated symbols in {side.description}"
    return TokenizerChoice("words", None, f"words: {counts}, so each is one token")


def _choose_characters(side: SideStats) -> TokenizerChoice | None:
    """For short texts such as words and names, or too little text to train subwords."""
    distinct, length = len(side.characters), side.characters_per_line
    counts = f"lines average {length:.1f} characters and have {distinct:,} different ones"
    unspaced_text = side.unspaced and distinct > 200 and length > 10
    running_text = length > 24 or side.symbols_per_line >= 4 or unspaced_text
    if not running_text:
        return TokenizerChoice("characters", None, f"characters: {counts}")
    if length * side.total < 50_000 and distinct < 1_000:
        little = f"{side.description} are too little text to train subwords"
        return TokenizerChoice("characters", None, f"characters: {counts}; {little}")
    return None


def _choose_subwords(side: SideStats) -> TokenizerChoice:
    """For running text."""
    size = _subword_size(side)
    spacing = f"with {side.symbols_per_line:.1f} words per line"
    if side.unspaced:
        spacing = "without spaces between words"
    words = f"about {_round_to_two_digits(_count_words(side)):,} words in total"
    reason = f"bpe of {size:,}: {side.description} of running text {spacing}, {words}"
    return TokenizerChoice("bpe", size, reason)


def _count_words(side: SideStats) -> float:
    """Words in the whole side; without spaces, a word counts as 2.5 characters."""
    per_line = side.characters_per_line / 2.5 if side.unspaced else side.symbols_per_line
    return side.total * per_line


def _subword_size(side: SideStats) -> int:
    if not side.lines:
        return SIZES[0][1]
    words = _count_words(side)
    size = next((size for most, size in SIZES if words <= most), LARGEST)
    # A script with thousands of characters needs room for 99.9 % of them and as many subwords.
    needed = seen = 0
    enough = 0.999 * side.characters.total()
    for _, count in side.characters.most_common():
        if seen >= enough:
            break
        needed += 1
        seen += count
    minimum = len(SPECIAL_TOKENS) + len(BYTE_TOKENS) + 2 * needed
    return max(size, next((size for _, size in SIZES if size >= minimum), LARGEST))


def _round_to_two_digits(number: float) -> int:
    digits = max(0, len(str(int(number))) - 2)
    return int(round(number, -digits))
