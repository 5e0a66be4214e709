"""Detection of tags in the texts of one side: task tags, languages and morphological features.

A tag is a code that recurs at the start or the end of nearly every text: `[PL]`, `fr`, `2de`, `N`,
or the features of a bundle such as `V;PST;3;SG`. Whether such a position holds tags is measured:
its values must be a closed set, with hardly any that occur only once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regard.errors import choose
from regard.text.regard_vocabulary import nfc
from regard.text.tags import JOINERS, MARKUP, MAX_TAGS, NO_TAGS, TagSet, split_fields

TAG_POSITIONS = dict.fromkeys(("auto", "none", "first", "last"))
MIN_TEXTS = 20
MIN_ROWS = 5  # of a table with a column of tags
MAX_TEXTS = 50_000  # examined
MIN_COVERAGE = 0.9  # share of texts with the tag
MAX_UNSEEN = 0.02  # probability of a new tag (Good–Turing estimate)
MAX_UNSEEN_FEATURE = 0.1  # the same in bundles, whose form says that they are tags
MIN_RECURRENCE = 5  # mean number of texts with a tag
MAX_SPACED = 0.02  # of the bundles of a column
MAX_SHARED = 0.05  # share of other fields that are also tags
MAX_TAG_LENGTH = 40
CODE = r"[A-Za-z0-9][\w:.=]{0,38}"
MARK = rf"\[{CODE}\]|\{{{CODE}\}}|>>{CODE}<<|__{CODE}__"
MARK_PATTERNS = (re.compile(rf"^(?:{MARK})"), re.compile(rf"(?:{MARK})$"))


class _Candidate(NamedTuple):
    """A position of tags: its side of a text, and the slice of the text's fields. Several fields
    are tried before one, but a bundle is always one field."""

    side: str
    fields: slice
    several: bool


CANDIDATES = (
    _Candidate("last", slice(1, None), several=True),
    _Candidate("last", slice(-1, None), several=False),
    _Candidate("first", slice(None, -1), several=True),
    _Candidate("first", slice(None, 1), several=False),
)


def detect_tags(lines: Sequence[str], requested: str = "auto") -> TagSet:
    """The tags of one side beside markup. With `first` or `last`, the field at this side of each
    text is a tag without further evidence."""
    choose(TAG_POSITIONS, requested, "position of tags")
    if requested == "none":
        return NO_TAGS
    sample = lines[:: max(1, len(lines) // MAX_TEXTS)]
    texts = [text for line in sample if (text := MARKUP.sub("", nfc(line)).strip())]
    if requested == "auto" and (found := _detect_marks(texts)):
        return found
    rows = [re.split("(?= )", text) for text in texts]
    rows = [row for row in rows if len(row) > 1]
    forced = requested != "auto"
    if not forced and (len(texts) < MIN_TEXTS or len(rows) < MIN_COVERAGE * len(texts)):
        return NO_TAGS
    for candidate in CANDIDATES:
        if forced and (candidate.several or candidate.side != requested):
            continue
        if fields := _detect_fields(rows, candidate, forced=forced):
            place = "end" if candidate.side == "last" else "start"
            return TagSet((), fields, _explain(fields, place))
    return NO_TAGS


def is_tag_column(values: Sequence[str]) -> bool:
    """Whether a column of a table has bundles of features, such as `V;PST;3;SG`, that recur.

    A few may have a space by mistake (`N;ACC; PL`, in published data).
    """
    cells = [value.strip() for value in values if value.strip()]
    values = ["".join(cell.split()) for cell in cells]
    joiner = _joiner(values) if len(values) >= MIN_ROWS else ""
    if not joiner or sum(" " in cell for cell in cells) > MAX_SPACED * len(cells):
        return False
    if not all(_is_code(value, bundled=True) for value in values):
        return False
    found = Counter(part for value in values for part in value.split(joiner))
    return found.total() >= 2 * len(found)


def _detect_marks(texts: Sequence[str]) -> TagSet:
    """Tags in square or curly brackets and the like, attached to the text or not."""
    for pattern, place in zip(MARK_PATTERNS, ("start", "end"), strict=True):
        found = Counter(match[0] for text in texts if (match := pattern.search(text)))
        covered = found.total() >= MIN_COVERAGE * len(texts) and len(texts) >= MIN_TEXTS
        if covered and _is_closed(found, MAX_UNSEEN):
            marks = _by_frequency(found)
            return TagSet(marks, (), _explain(marks, place))
    return NO_TAGS


def _detect_fields(
    rows: Sequence[list[str]], candidate: _Candidate, *, forced: bool
) -> tuple[str, ...]:
    """The tags among the fields of texts, each with the space or joiner before it."""
    values = [field for row in rows for field in row[candidate.fields]]
    joiner = _joiner(values)
    if joiner and candidate.several:
        return ()
    found = Counter(
        part for value in values for part in split_fields(value, joiner) if part.strip(f" {joiner}")
    )
    if not forced and not _are_tags(rows, candidate, values, found):
        return ()
    least = 1 if joiner else 2  # a field that occurs once may be a word
    return _by_frequency(Counter({tag: n for tag, n in found.items() if n >= least}))


def _are_tags(
    rows: Sequence[list[str]], candidate: _Candidate, values: Sequence[str], found: Counter[str]
) -> bool:
    """Whether the values of a position are codes of a closed set that other positions lack."""
    bundled = bool(_joiner(values))
    if not _is_closed(found, MAX_UNSEEN_FEATURE if bundled else MAX_UNSEEN):
        return False
    if sum(_is_code(value.strip(), bundled=bundled) for value in values) < 0.98 * len(values):
        return False
    rest = [field.strip() for row in rows for field in _rest(row, candidate.fields)]
    known = {value.strip() for value in values}
    apart = sum(field in known for field in rest) <= MAX_SHARED * len(rest)
    return apart and (bundled or _is_short(known) or _contrasts(known, rest))


def _rest(row: list[str], fields: slice) -> list[str]:
    taken = range(len(row))[fields]
    return [field for at, field in enumerate(row) if at not in taken]


def _joiner(values: Sequence[str]) -> str:
    """The joiner of features in more than half of the values, empty if these are not bundles."""
    counts = {joiner: sum(_is_bundle(value, joiner) for value in values) for joiner in JOINERS}
    best = max(JOINERS, key=lambda joiner: counts[joiner])
    return best if 2 * counts[best] > len(values) else ""


def _is_bundle(value: str, joiner: str) -> bool:
    """Whether a field has several features: V;PST, N+Pl, Case=Nom|Number=Sing."""
    parts = value.strip().split(joiner)
    return len(parts) > 1 and all(parts) and any(part[:1].isalpha() for part in parts)


def _is_code(value: str, *, bundled: bool) -> bool:
    """Whether a field can be a tag: ASCII with a letter, and not too long."""
    longest = MAX_TAG_LENGTH * (8 if bundled else 1)
    return value.isascii() and len(value) <= longest and any(map(str.isalpha, value))


def _is_short(values: Iterable[str]) -> bool:
    """Whether all tags are codes of up to three letters, or have a digit: fr, 2de."""
    return all(len(value) <= 3 or any(map(str.isdigit, value)) for value in values)


def _contrasts(values: Iterable[str], rest: Sequence[str]) -> bool:
    """Whether tags are in capital letters and the other text is not."""
    other = sum(any(map(str.islower, text)) or not text.isascii() for text in rest)
    return not any(map(str.islower, "".join(values))) and other > len(rest) / 2


def _is_closed(found: Counter[str], most: float) -> bool:
    """Whether these are all the tags there are, by how many occur only once."""
    total = found.total()
    once = sum(count == 1 for count in found.values())
    enough = total >= MIN_RECURRENCE * len(found)
    return 0 < len(found) <= MAX_TAGS and enough and once <= most * total


def _by_frequency(found: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted(found, key=lambda tag: (-found[tag], tag))[:MAX_TAGS])


def _explain(tags: Sequence[str], place: str) -> str:
    shown = ", ".join(tag.strip(f" {JOINERS}") for tag in tags[:4])
    count = f"{len(tags):,} tag{'s' * (len(tags) != 1)} at the {place} of each text"
    return f"{count}, one token each: {shown}{', …' * (len(tags) > 4)}"
