"""Build a search from decoding options: greedy, beam search or sampling, with its constraints."""

from __future__ import annotations

from collections.abc import Sequence

from regard.decoding_options import DecodingOptions
from regard.errors import RegardError
from regard.search import constraints
from regard.search.beam import Beam
from regard.search.constraints import LexicalConstraints
from regard.search.greedy import Greedy
from regard.search.hypothesis import LengthPenalty, Search
from regard.search.sampling import Sampling
from regard.text import UNKNOWN, Tokenizer


def build_search(
    options: DecodingOptions, target: Tokenizer, *, length_penalty: float = 0.0
) -> Search:
    """The search that the options describe; `length_penalty` is used where they name none."""
    options.check()
    constraints = parse_constraints(
        target,
        min_length=options.min_length,
        max_length=options.max_length,
        prefix=options.prefix,
        ban=options.ban,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram=options.no_repeat_ngram,
    )
    if options.sample:
        return Sampling(
            count=options.n_best,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            seed=options.seed,
            constraints=constraints,
        )
    alpha = length_penalty if options.length_penalty is None else options.length_penalty
    penalty = LengthPenalty(alpha)  # checks the value even where greedy search does not use it
    required = parse_required(target, options.require)
    if options.beam_size == 1 and required is None:
        return Greedy(constraints)
    return Beam(options.beam_size, options.n_best, penalty, constraints, required)


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
