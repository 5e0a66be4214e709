"""Tags: markup such as <2mod>, and features such as `V;PST`, which are one token each.

Markup in angle brackets is a tag wherever it occurs. Other tags are found by `detect_tags`: marks
in other brackets, which are cut out of a text wherever they occur, and fields, which are a token
only as a whole: between spaces, or between the joiners of a bundle such as `V;PST;3;SG`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import AddedToken, Regex, pre_tokenizers
from tokenizers import Tokenizer as Library

from regard.text.regard_vocabulary import nfc

# A tag is one token: <2mod>, </b>, <lang:sv>. A byte token's name is not a tag.
MARKUP = re.compile(r"</?(?!0x[0-9A-F]{2}>)[A-Za-z0-9][\w:.=-]{0,40}/?>")
MAX_TAGS = 1_000
JOINERS = ";|+,"


@dataclass(frozen=True)
class TagSet:
    """Tags of one side beside its markup: `marks` in brackets, and `fields`, each with the space or
    joiner before it (none at the start of a text)."""

    marks: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.marks or self.fields)

    @property
    def joiners(self) -> str:
        """The joiners before fields, in the order of JOINERS."""
        return "".join(one for one in JOINERS if any(tag[0] == one for tag in self.fields))

    def strip(self, line: str) -> str:
        """The line without markup and tags."""
        return self.remove(MARKUP.sub("", line) if "<" in line else line).strip()

    def remove(self, line: str) -> str:
        """The line without marks and fields; all other spaces stay."""
        if self.marks:
            line = self._mark_pattern.sub("", line)
        if not self.fields:
            return line
        parts = split_fields(line, self.joiners)
        return "".join(part for part in parts if part not in self._known)

    def __or__(self, other: TagSet) -> TagSet:
        """The tags of both."""
        marks, fields = (
            tuple(dict.fromkeys(both))
            for both in ((*self.marks, *other.marks), (*self.fields, *other.fields))
        )
        reasons = dict.fromkeys(filter(None, (self.reason, other.reason)))
        return TagSet(marks, fields, "; ".join(reasons))

    @cached_property
    def _mark_pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.marks)))

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.fields)


NO_TAGS = TagSet()


def split_fields(line: str, joiners: str) -> list[str]:
    """The line split before each space and joiner."""
    return re.split(f"(?=[ {re.escape(joiners)}])", line)


class TagCounter:
    """Lines split at their tags, markup being counted meanwhile."""

    def __init__(self, lines: Iterable[str], tags: TagSet = NO_TAGS) -> None:
        self.counts: Counter[str] = Counter()
        self._lines, self._tags = lines, tags

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            line = nfc(line)
            parts = [line]
            if "<" in line:
                self.counts.update(MARKUP.findall(line))
                parts = MARKUP.split(line)
            if self._tags:
                parts = list(map(self._tags.remove, parts))
            yield from filter(None, parts)

    def markup(self) -> list[str]:
        """The most frequent markup."""
        counts = self.counts
        return sorted(counts, key=lambda tag: (-counts[tag], tag))[:MAX_TAGS]


def add_tags(library: Library, markup: Sequence[str], tags: TagSet = NO_TAGS) -> Library:
    """Make markup and marks one token each, wherever they occur in a text, and fields as a whole.

    Fields of a characters tokenizer are words of its vocabulary. Other tokenizers split words in
    their own way, so that fields are cut out first, the space before them excluded."""
    document = json.loads(library.to_str())
    model = document["model"]
    spelled = model["type"] == "BPE" and not model["byte_fallback"]
    cut = list(dict.fromkeys([*markup, *tags.marks]))
    if not spelled:
        cut += [tag for tag in dict.fromkeys(map(str.lstrip, tags.fields)) if tag not in cut]
    fields = [tag for tag in tags.fields if tag not in model["vocab"]] if spelled else []
    if not cut and not fields:
        return library
    names = cut + fields
    if isinstance(model["vocab"], list):  # of a unigram model: tokens with log-probabilities
        model["vocab"] += [[tag, model["vocab"][-1][1]] for tag in names]
    else:
        for tag in names:
            model["vocab"].setdefault(tag, len(model["vocab"]))
    if fields:
        model["ignore_merges"] = True  # a word of the vocabulary is one token
    library = Library.from_str(json.dumps(document))
    if fields:
        pattern = Regex(f"[ {re.escape(tags.joiners)}]")
        library.pre_tokenizer = pre_tokenizers.Split(pattern, "merged_with_next")
    library.add_tokens(
        [
            AddedToken(tag, normalized=True, special=False, single_word=tag[0].isalnum())
            for tag in cut
        ]
    )
    return library
