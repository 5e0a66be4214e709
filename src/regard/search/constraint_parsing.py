"""Worded: rules from words and numbers, as people give them, in the ids of a target's tokeniser."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import RegardError
from regard.search import constraints as rules
from regard.search.lexical_constraints import Required
from regard.text import UNKNOWN, Tokenizer


def restrictions(
    target: Tokenizer,
    *,
    shortest: int = 0,
    longest: int | None = None,
    prefix: str = "",
    banned: Sequence[str] = (),
    repetition: float = 1.0,
    no_repeat: int = 0,
) -> tuple[rules.Rule, ...]:
    """What every answer must keep to, for any search. Lengths are in tokens."""
    found: list[rules.Rule] = []
    if shortest:
        found.append(rules.shortest(shortest))
    if longest is not None:
        found.append(rules.longest(longest))
    if prefix:
        found.append(rules.prefix(spellings(target, prefix)[0]))
    if banned:
        found.append(rules.banned([ids for word in _words(banned) for ids in spellings(target, word)]))
    if repetition != 1.0:
        found.append(rules.repetition(repetition))
    if no_repeat:
        found.append(rules.no_repeat(no_repeat))
    return tuple(found)


def requirement(target: Tokenizer, words: Sequence[str]) -> Required | None:
    """That every answer has these words, at its beginning or inside; None where there are none."""
    spelled = [spellings(target, word) for word in _words(words)]
    return Required([forms[-1] for forms in spelled], [forms[0] for forms in spelled]) if spelled else None


def _words(words: Sequence[str]) -> Sequence[str]:
    """A text alone is one word, not its letters."""
    return [words] if isinstance(words, str) else words


def spellings(target: Tokenizer, word: str) -> list[list[int]]:
    """The ids of a word at the beginning of a text and, where pieces carry the space before them, inside it."""
    forms = [word, f" {word}"] if target.kind in ("bpe", "unigram") else [word]
    spelled = [target.encode(form) for form in forms]
    if not all(spelled) or UNKNOWN in spelled[0]:
        raise RegardError(f"{word!r} cannot be said in this vocabulary; give a word of known symbols")
    return spelled
