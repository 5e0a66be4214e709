"""Checks of a corpus: lengths, scripts, duplicates, conflicts, overlap and unusual lines.

`PairChecks` sees every pair once, in bounded memory. `regard data` shows all of its findings,
`regard train` warns about the serious ones, and `regard clean` drops the pairs they name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

from regard.text.corpus_stats import SystematicSample
from regard.text.reading import Pair
from regard.text.repeated_pairs import RepeatedPairs
from regard.text.tokenizers import nfc
from regard.text.writing_systems import count_scripts, script_of

MAX_CHECKED = 2_000_000  # pairs checked one by one; of more, a sample and the overlap
MAX_SAMPLE = 20_000  # pairs compared with the typical length ratio and script
MAX_EXAMPLES = 3  # of each finding
SIDES = ("source", "target")
MAX_RATIO = 5.0  # of a length ratio to the typical one
MIN_LENGTH = 12  # characters of the longer side, below which any ratio is normal
BROKEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f\ufffd\ufeff]"
    "|Ã[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œ¤¥¦§¨©ª«¬®¯°±²³´µ¶·¸¹º»¼½¾¿]|â€"
)
MARKUP = re.compile(r"&(?:[a-z]{2,8}|#\d{2,5});|https?://|</?(?:p|br|div|span|a)\b[^>]*>")
DESCRIPTIONS = {
    "duplicate": "exact duplicates of an earlier pair",
    "conflict": "sources with several targets",
    "identical": "pairs whose target equals their source",
    "broken characters": "pairs with broken characters (a wrong encoding?)",
    "markup": "pairs with web addresses or markup",
    "length": "pairs of unusual length ratio",
    "script": "pairs in another script than the rest",
    "overlap": "held-out sources that also occur in the training data",
}


@dataclass(frozen=True)
class SideReport:
    """One side of a corpus: lengths in characters and words, scripts, different characters."""

    shortest: int
    median: float
    longest: int
    words: float
    characters: int
    scripts: dict[str, float]


@dataclass(frozen=True)
class DataReport:
    """Findings about a corpus. `counts`, of the first `checked` pairs, and `examples` are by the
    names in DESCRIPTIONS."""

    pairs: int
    checked: int
    sides: dict[str, SideReport]
    counts: dict[str, int]
    examples: dict[str, list[tuple[str, str]]]
    coverage: dict[str, float] = field(default_factory=dict)


class PairChecks:
    """Collects the findings about a stream of pairs. `held_out` are pairs to compare it with."""

    def __init__(self, held_out: Iterable[Pair] = ()) -> None:
        self.pairs = 0
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[tuple[str, str]]] = {}
        self._held_out = [Pair(nfc(s), nfc(t)) for s, t in held_out]
        self._held_out_sources = {pair.source for pair in self._held_out}
        self._found: set[str] = set()
        self._repeated = RepeatedPairs(MAX_EXAMPLES)
        self._sample: SystematicSample[Pair] = SystematicSample(len, max_items=MAX_SAMPLE)
        # The held-out words of each side, and those that were found in the pairs.
        self._held_out_words = [
            {word for pair in self._held_out for word in pair[i].split()} for i in range(2)
        ]
        self._found_words: tuple[set[str], set[str]] = (set(), set())

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Pass the pairs through and check them."""
        for pair in pairs:
            self.add(pair)
            yield pair

    def add(self, pair: Pair) -> None:
        """Check one pair."""
        self.pairs += 1
        self._sample.add(pair)
        if self._held_out:
            self._compare_with_held_out(pair)
        if self.pairs > MAX_CHECKED:
            return
        self._repeated.add(pair)
        if pair.source == pair.target:
            self._note("identical", pair)
        if kind := unusual_text(pair):
            self._note(kind, pair)

    def _compare_with_held_out(self, pair: Pair) -> None:
        source = nfc(pair.source)
        if source in self._held_out_sources and source not in self._found:
            self._found.add(source)
            self._note("overlap", pair)
        for found, held_out, text in zip(
            self._found_words, self._held_out_words, pair, strict=True
        ):
            found.update(held_out.intersection(nfc(text).split()))

    def _note(self, kind: str, pair: Pair) -> None:
        self.counts[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append((pair.source, pair.target))

    def report(self) -> DataReport:
        """All findings. Ratios and scripts are those of a sample, scaled to all pairs."""
        counts = Counter(self.counts)
        repeats = self._repeated.counts()
        counts.update(duplicate=repeats.duplicates, conflict=repeats.conflicts)
        examples = {kind: list(pairs) for kind, pairs in self.examples.items()}
        for kind, pairs in (
            ("duplicate", self._repeated.duplicates),
            ("conflict", self._repeated.conflicts),
        ):
            examples |= {kind: [(pair.source, pair.target) for pair in pairs]} if pairs else {}
        typical = TypicalPair(self._sample.items)
        for pair in self._sample.items:
            if kind := typical.differs(pair):
                counts[kind] += 1
                examples.setdefault(kind, [])
                examples[kind] += (
                    [(pair.source, pair.target)] if len(examples[kind]) < MAX_EXAMPLES else []
                )
        checked = min(self.pairs, MAX_CHECKED)
        scale = checked / max(1, len(self._sample.items))
        for kind in ("length", "script"):
            counts[kind] = round(counts[kind] * scale)
        sides = {
            side: _describe_side([pair[i] for pair in self._sample.items])
            for i, side in enumerate(SIDES)
        }
        return DataReport(self.pairs, checked, sides, dict(+counts), examples, self._coverage())

    def _coverage(self) -> dict[str, float]:
        """The share of held-out words that occur in the training data, for each side."""
        coverage = {}
        for i, side in enumerate(SIDES if self._held_out else ()):
            words = [word for pair in self._held_out for word in pair[i].split()]
            coverage[side] = sum(word in self._found_words[i] for word in words) / max(
                1, len(words)
            )
        return coverage

    def consistency(self) -> tuple[float, float]:
        """The share of sources with several targets; and the ceiling: the share of sources that
        are right at most if one target is drawn for each, as frequent as here."""
        found = self._repeated.counts()
        sources = max(1, found.sources)
        return found.conflicts / sources, 1 - found.lost / sources

    def warnings(self) -> list[str]:
        """The serious findings, each in a line with an example and the fix."""
        found = self.report()
        lines = []
        for kind, share, fix in (
            ("broken characters", 0.0, "name the --encoding, or drop them with regard clean"),
            ("duplicate", 0.05, "regard clean drops them"),
            ("identical", 0.5, "a model that copies is right that often"),
            ("script", 0.001, "regard clean --drop-scripts drops them"),
            ("markup", 0.01, "regard clean --drop-markup drops them"),
        ):
            count = found.counts.get(kind, 0)
            if count > share * found.checked and self.pairs >= 20:
                percent = f"{100 * count / found.checked:.1f} %"
                source, target = (_short(text) for text in found.examples[kind][0])
                example = f"for example {source} → {target}"
                what = f"{count:,} {DESCRIPTIONS[kind]} ({percent}), {example}"
                lines.append(f"data: {what}; {fix}")
        return lines


class TypicalPair:
    """The typical length ratio and scripts of some pairs, to tell unusual ones."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        pairs = list(pairs)
        self.ratio = median([_ratio(pair) for pair in pairs]) if pairs else 1.0
        self.scripts = [_main_scripts([pair[i] for pair in pairs]) for i in range(2)]

    def differs(self, pair: Pair, *, max_ratio: float = MAX_RATIO) -> str:
        """The kind of difference from the typical pair; empty if there is none."""
        relative = _ratio(pair) / self.ratio
        if not 1 / max_ratio <= relative <= max_ratio and max(map(len, pair)) >= MIN_LENGTH:
            return "length"
        for text, usual in zip(pair, self.scripts, strict=True):
            own = {script for character in text if (script := script_of(character))}
            if usual and own and not own & usual:
                return "script"
        return ""


def unusual_text(pair: Pair) -> str:
    """Whether a pair has broken characters or markup; empty if neither."""
    text = f"{pair.source}\n{pair.target}"
    plain = text.isascii() and pair.source.isprintable() and pair.target.isprintable()
    if not plain and BROKEN.search(text):
        return "broken characters"
    signs = "&" in text or "<" in text or "://" in text  # much faster than the expression
    return "markup" if signs and MARKUP.search(text) else ""


def _describe_side(texts: list[str]) -> SideReport:
    lengths = sorted(map(len, texts)) or [0]
    scripts = count_scripts(texts)
    total = max(1, scripts.total())
    return SideReport(
        shortest=lengths[0],
        median=median(lengths),
        longest=lengths[-1],
        words=median([len(text.split()) for text in texts] or [0]),
        characters=len(set().union(*texts)),
        scripts={name: round(count / total, 4) for name, count in scripts.most_common(5)},
    )


def _main_scripts(texts: list[str]) -> set[str]:
    """The scripts with at least a tenth of the letters."""
    scripts = count_scripts(texts)
    return {name for name, count in scripts.items() if count >= 0.1 * scripts.total()}


def _ratio(pair: Pair) -> float:
    return (len(pair.target) + 1) / (len(pair.source) + 1)


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:29] + "…")
