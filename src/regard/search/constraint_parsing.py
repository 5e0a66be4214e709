"""Constraints from text options, in the ids of the target tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import RegardError
from regard.search import constraints
from regard.search.lexical_constraints import LexicalConstraints
from regard.text import UNKNOWN, Tokenizer


def parse_constraints(
    target: Tokenizer,
    *,
    min_length: int = 0,
    max_length: int | None = None,
    prefix: str = "",
    ban: Sequence[str] = (),
    repetition_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
) -> tuple[constraints.Constraint, ...]:
    """The constraints of any search. Lengths are in tokens."""
    found: list[constraints.Constraint] = []
    if min_length:
        found.append(constraints.min_length(min_length))
    if max_length is not None:
        found.append(constraints.max_length(max_length))
    if prefix:
        found.append(constraints.prefix(spellings(target, prefix)[0]))
    if ban:
        found.append(
            constraints.ban([ids for word in _words(ban) for ids in spellings(target, word)])
        )
    if repetition_penalty != 1.0:
        found.append(constraints.repetition_penalty(repetition_penalty))
    if no_repeat_ngram:
        found.append(constraints.no_repeat_ngram(no_repeat_ngram))
    return tuple(found)


def parse_required(target: Tokenizer, words: Sequence[str]) -> LexicalConstraints | None:
    """The lexical constraints for these words; None if there are none."""
    spelled = [spellings(target, word) for word in _words(words)]
    return (
        LexicalConstraints([forms[-1] for forms in spelled], [forms[0] for forms in spelled])
        if spelled
        else None
    )


def _words(words: Sequence[str]) -> Sequence[str]:
    """A single string is one word, not a sequence of letters."""
    return [words] if isinstance(words, str) else words


def spellings(target: Tokenizer, word: str) -> list[list[int]]:
    """The ids of a word at the start of a text and, where pieces include the preceding space,
    inside it.
    """
    forms = [word, f" {word}"] if target.kind in ("bpe", "unigram") else [word]
    spelled = [target.encode(form) for form in forms]
    if not all(spelled) or UNKNOWN in spelled[0]:
        raise RegardError(
            f"{word!r} contains symbols that the target vocabulary lacks; use known symbols"
        )
    return spelled
