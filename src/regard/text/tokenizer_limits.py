"""What a tokenizer.json may contain: patterns and replacements whose cost is bounded.

The library compiles and runs the patterns of a file. A pattern that repeats a repetition can take
exponential time, and a chain of replacements can fill the memory. Patterns of known tokenizers
repeat single characters or classes; others are refused before the library compiles them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from regard.text.vocabulary import TokenizerError

MAX_BYTES = 1 << 26  # of a file
MAX_PATTERN = 4_096  # characters
MAX_REPEATS = 1_000  # in {m,n}
MAX_UNBOUNDED = 3  # repetitions in one alternative: the time is at most quartic
MAX_STEPS = 64  # of a normalizer, pre-tokenizer or decoder
MAX_GROWTH = 256  # of a text, by all replacements of a part
MAX_ADDED_TOKENS = 1 << 17
MAX_SPREAD, MAX_GAP = 4, 1 << 16  # ids beyond the number of tokens
MAX_WORD = 1_000  # characters that WordPiece searches in quadratic time
UNBOUNDED = 1 << 60
PARTS = ("normalizer", "pre_tokenizer", "decoder")
_CHARACTER_TABLE = re.compile(rb'"precompiled_charsmap"\s*:\s*("(?:[^"\\]|\\.)*")')
_PATTERN = re.compile(rb'"Regex"\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)


def check_patterns(content: bytes) -> None:
    """Raise if a tokenizer.json has a regular expression whose time is not bounded, or a table of
    characters that the library would fail on."""
    if b"\\u00" in content:  # names may be written in escapes
        content = json.dumps(json.loads(content), ensure_ascii=False).encode(errors="replace")
    for found in _PATTERN.findall(content):
        check_pattern(json.loads(found))
    for found in _CHARACTER_TABLE.findall(content):
        _check_character_table(json.loads(found))


def _check_character_table(text: str) -> None:
    """Raise unless this is the size of a trie, the trie, and UTF-8 text (SentencePiece)."""
    try:
        data = base64.b64decode(text, validate=True)
        size = int.from_bytes(data[:4], "little")
        if len(data) < 4 or size % 4 or not 0 < size <= len(data) - 4:
            raise ValueError
        data[4 + size :].decode()
    except ValueError:
        raise TokenizerError("its precompiled_charsmap is damaged") from None


def check_ids(ids: Collection[int]) -> None:
    """Raise if ids are far beyond the number of tokens: the library writes a line for each gap."""
    highest = max(ids, default=-1)
    if highest >= MAX_SPREAD * len(ids) + MAX_GAP:
        raise TokenizerError(f"its {len(ids):,} tokens have ids up to {highest:,}")


def check_document(document: dict[str, Any]) -> None:
    """Raise if the parts of a tokenizer can enlarge a text, or take time, without bound."""
    if len(document.get("added_tokens") or ()) > MAX_ADDED_TOKENS:
        raise TokenizerError(f"it adds more than {MAX_ADDED_TOKENS:,} tokens")
    word = document["model"].get("max_input_chars_per_word", 0)
    if word > MAX_WORD:
        raise TokenizerError(f"max_input_chars_per_word is {word:,}; at most {MAX_WORD:,} are read")
    for name in PARTS:
        steps = list(_steps(document.get(name)))
        if len(steps) > MAX_STEPS:
            raise TokenizerError(f"its {name} has {len(steps):,} steps; at most {MAX_STEPS}")
        growth = 1
        for step in steps:
            growth *= _growth(step)
            if growth > MAX_GROWTH:
                raise TokenizerError(
                    f"its {name} can make a text over {MAX_GROWTH} times as long; replace less"
                )


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part, which may be nested sequences."""
    if isinstance(part, dict) and part.get("type") == "Sequence":
        for inner in next((x for x in part.values() if isinstance(x, list)), []):
            yield from _steps(inner)
    elif isinstance(part, dict):
        yield part


def _growth(step: dict[str, Any]) -> int:
    """How many times as long a text can become in a step."""
    if step.get("type") == "FixedLength" and step["length"] < 1:
        raise TokenizerError("it splits texts into pieces of length 0; give at least 1")
    if step.get("type") == "Prepend":
        return len(step["prepend"])
    if step.get("type") != "Replace":
        return 1
    pattern = step["pattern"]
    if pattern.get("String") == "":
        raise TokenizerError("it replaces an empty text; give the text to replace")
    # A regular expression can also match between characters, and so adds to them.
    return max(1, len(step["content"]) + ("Regex" in pattern))


class _Group:
    """An open group of a regular expression."""

    def __init__(self) -> None:
        self.is_simple = True  # has neither repetitions nor alternatives
        self.unbounded = 0  # repetitions without end in the current alternative
        self.most = 0  # … in an earlier one

    def start_alternative(self) -> None:
        self.is_simple = False
        self.most, self.unbounded = max(self.most, self.unbounded), 0


def check_pattern(pattern: str) -> None:
    """Raise if matching a regular expression can take more than polynomial time."""
    if len(pattern) > MAX_PATTERN:
        raise TokenizerError(f"a pattern has {len(pattern):,} characters; at most {MAX_PATTERN:,}")
    groups, closed, at = [_Group()], None, 0
    while at < len(pattern):
        most, end = _repetition(pattern, at)
        character, at, last = pattern[at], end, closed
        closed = None
        if most is not None:
            if last is not None and most != 1 and not last.is_simple:
                raise _refused(pattern, "repeats a group with repetitions or alternatives")
            if MAX_REPEATS < most < UNBOUNDED:
                raise _refused(pattern, f"repeats {most:,} times; at most {MAX_REPEATS:,}")
            groups[-1].is_simple = False
            groups[-1].unbounded += most == UNBOUNDED
        elif character == "\\":
            if pattern[at : at + 1].isdigit() or pattern[at : at + 1] in ("k", "g"):
                raise _refused(pattern, "refers back to a group")
            at += 1
        elif character == "[":
            at = _class_end(pattern, at - 1)
        elif character == "(":
            groups.append(_Group())
            at += pattern.startswith("?", at)  # (?: is no repetition
        elif character == "|":
            groups[-1].start_alternative()
        elif character == ")" and len(groups) > 1:
            closed = groups.pop()
            groups[-1].is_simple &= closed.is_simple
            groups[-1].unbounded += max(closed.most, closed.unbounded)
        if groups[-1].unbounded > MAX_UNBOUNDED:
            raise _refused(pattern, f"has over {MAX_UNBOUNDED} repetitions without end in a row")


def _refused(pattern: str, reason: str) -> TokenizerError:
    return TokenizerError(f"the pattern {pattern!r:.60} {reason}, so its time is not bounded")


def _repetition(pattern: str, at: int) -> tuple[int | None, int]:
    """How often the quantifier here repeats at most, None if there is none; and where it ends."""
    character, most, end = pattern[at], None, at + 1
    if character in "*+":
        most = UNBOUNDED
    elif character == "?":
        most = 1
    elif found := re.compile(r"\{(\d*)(,?)(\d*)\}").match(pattern, at):
        low, comma, high = found.groups()
        last = high if comma else low
        most, end = int(last[:9]) if last else UNBOUNDED, found.end()
    if most is not None and pattern[end : end + 1] in ("?", "+"):  # lazy or possessive
        end += 1
    return most, end


def _class_end(pattern: str, at: int) -> int:
    """The end of a character class, which may contain others."""
    depth = 0
    while at < len(pattern):
        character, at = pattern[at], at + 1
        if character == "\\":
            at += 1
        elif character == "[":
            depth += 1
            at += pattern.startswith("^", at)
            at += pattern.startswith("]", at)  # a literal bracket
        elif character == "]":
            depth -= 1
            if not depth:
                return at
    return at
