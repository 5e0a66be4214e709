"""Augmentation of small training data: hallucinated pairs, and repetitions of the real ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from regard.text.hallucination import Hallucinator
from regard.text.reading import Pair
from regard.text.tokenizers import Tokenizer, nfc

MAX_PAIRS = 2_000  # with 3,000 inflected forms, hallucinated ones no longer helped
HALLUCINATED = 4_000  # pairs; 10,000 were no better
REAL_SHARE = 1 / 4  # real pairs, with their repetitions, over hallucinated ones
MIN_TAGGED = 0.8  # share of sources with a tag, such as <PL>, that says what to do with the rest,
MIN_SHARED = 0.3  # of pairs with a common stem,
MIN_KNOWN = 0.85  # and of target symbols that sources have: sounds written as letters have fewer
JOINED = {"characters": "", "words": " "}  # symbols become text


@dataclass(frozen=True)
class Augmentation:
    """How many pairs are hallucinated, and how often each real pair is used."""

    hallucinated: int
    repeats: int

    def extend(
        self, pairs: Iterable[Pair], source: Tokenizer, target: Tokenizer, seed: int
    ) -> Iterator[Pair]:
        """All pairs, their repetitions, and hallucinated ones; the same for the same seed."""
        real = list(pairs)
        for _ in range(self.repeats):
            yield from real
        hallucinator = Hallucinator(symbol_pairs(real, source, target), seed)
        for sources, targets in hallucinator.draw(self.hallucinated):
            yield Pair(JOINED[source.kind].join(sources), JOINED[target.kind].join(targets))


def choose_augmentation(
    sample: list[Pair], total: int, source: Tokenizer, target: Tokenizer, requested: int | None
) -> tuple[Augmentation | None, str]:
    """The augmentation for `total` training pairs, of which `sample` are some or all, and the
    reason; `requested` is `text.hallucination`."""
    if requested == 0 or not {source.kind, target.kind} <= set(JOINED):
        return None, ""
    if requested is None and total >= MAX_PAIRS:
        return None, ""
    symbols = list(symbol_pairs(sample, source, target))
    tagged = sum(map(_has_tag, symbols)) / max(len(symbols), 1)
    shared = Hallucinator(symbols, seed=0).share
    alphabet = {symbol for sources, _ in symbols for symbol in sources}
    used = [symbol for _, targets in symbols for symbol in targets]
    known = sum(symbol in alphabet for symbol in used) / max(len(used), 1)
    fits = tagged >= MIN_TAGGED and shared >= MIN_SHARED and known >= MIN_KNOWN
    if requested is None and not fits:
        return None, ""
    count = HALLUCINATED if requested is None else requested
    repeats = 1 + round(REAL_SHARE * count / max(total, 1))
    reason = (
        f"data hallucination: {count:,} pairs with random stems, because {100 * shared:.0f} % of "
        f"{total:,} targets share a stem with their source; each pair is used "
        f"{repeats} times (text.hallucination)"
    )
    return Augmentation(count, repeats), reason


def _has_tag(pair: tuple[list[str], list[str]]) -> bool:
    """Whether the source has a symbol of several characters that its target has not."""
    sources, targets = pair
    return any(len(symbol) > 1 and symbol not in targets for symbol in sources)


def symbol_pairs(
    pairs: Iterable[Pair], source: Tokenizer, target: Tokenizer
) -> Iterator[tuple[list[str], list[str]]]:
    """The symbols of each pair; pairs with symbols that do not spell their text are left out."""
    for pair in pairs:
        sides = []
        for tokenizer, text in ((source, pair.source), (target, pair.target)):
            symbols = [piece.text for piece in tokenizer.pieces(text)]
            if nfc(JOINED[tokenizer.kind].join(symbols)) == nfc(text):
                sides.append(symbols)
        if len(sides) == 2:
            yield sides[0], sides[1]
