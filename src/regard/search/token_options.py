"""TokenOptions: decoding options in token ids, with all defaults filled in and all values checked.

Every engine takes them: `build_search` makes a search algorithm for a torch model from them, and
the native engine its C structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

from regard.decoding_options import DecodingOptions
from regard.errors import RegardError
from regard.search.hypothesis import LengthPenalty
from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.text.tokenizers import Tokenizer

LEAST, MOST = 1e-6, 1e6  # keep penalised and scaled log-probabilities finite in float32
MAX_SEED = 2**127
Ids = Sequence[int]


@dataclass(frozen=True)
class TokenOptions:
    """Decoding options in ids. `beam` 1 without a length penalty is greedy search.

    `required` holds token sequences that every output must contain, and `required_opening` their
    forms at the start of a text (default: the same). `template` has the special tokens.
    """

    beam: int = 1
    n_best: int = 1
    length_penalty: float = 0.0
    min_length: int = 0
    max_length: int | None = None
    prefix: Ids = ()
    ban: Sequence[Ids] = ()
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0
    required: Sequence[Ids] = ()
    required_opening: Sequence[Ids] | None = None
    sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1
    template: Template = DEFAULT_TEMPLATE

    def check(self) -> None:
        """Raise if a value is out of range."""
        check_length("min_length", self.min_length)
        check_length("max_length", self.max_length or 0)
        check_repetition_penalty(self.repetition_penalty)
        check_no_repeat_ngram(self.no_repeat_ngram or 1)
        check_sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.seed)


def resolve_options(
    options: DecodingOptions,
    target: Tokenizer,
    *,
    length_penalty: float = 0.0,
    template: Template = DEFAULT_TEMPLATE,
) -> TokenOptions:
    """The options in target ids; `length_penalty` is used where they name none."""
    options.check()
    penalty = length_penalty if options.length_penalty is None else options.length_penalty
    LengthPenalty(penalty)  # checks the value even where greedy search does not use it
    required = [spellings(target, word) for word in as_words(options.require)]
    greedy = options.sample or (options.beam_size == 1 and not required)
    resolved = TokenOptions(
        beam=1 if greedy else options.beam_size,
        n_best=options.n_best,
        length_penalty=0.0 if greedy else penalty,
        min_length=options.min_length,
        max_length=options.max_length,
        prefix=spellings(target, options.prefix)[0] if options.prefix else (),
        ban=[ids for word in as_words(options.ban) for ids in spellings(target, word)],
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram=options.no_repeat_ngram,
        required=[forms[-1] for forms in required],
        required_opening=[forms[0] for forms in required],
        sample=options.sample,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        seed=options.seed,
        template=template,
    )
    resolved.check()
    return resolved


def as_words(words: Sequence[str]) -> Sequence[str]:
    """A single string is one word, not a sequence of letters."""
    return [words] if isinstance(words, str) else words


def spellings(target: Tokenizer, word: str) -> list[list[int]]:
    """The ids of a word at the start of a text and, where pieces include the preceding space,
    inside it.
    """
    spaced = target.kind in ("bpe", "unigram") or target.is_foreign
    spelled = [target.encode(form) for form in ([word, f" {word}"] if spaced else [word])]
    if not all(spelled) or target.unknown in spelled[0]:
        raise RegardError(
            f"{word!r} contains symbols that the target vocabulary lacks; use known symbols"
        )
    return spelled


def check_length(name: str, count: int) -> None:
    """Reject negative lengths."""
    if count < 0:
        raise RegardError(f"{name} must be at least 0; got {count}")


def check_repetition_penalty(penalty: float) -> None:
    """Reject penalties that are not positive or not finite in float32."""
    if penalty <= 0:
        raise RegardError(f"repetition_penalty must be above 0 (1 = off); got {penalty}")
    if not LEAST <= penalty <= MOST:  # also rejects NaN
        raise RegardError(
            f"repetition_penalty must be between {LEAST:f} and {MOST:.0f} (1 = off); got {penalty}"
        )


def check_no_repeat_ngram(count: int) -> None:
    """Reject n-grams without tokens."""
    if count < 1:
        raise RegardError(f"no_repeat_ngram must be at least 1; got {count}")


def check_sampling(
    temperature: float, top_k: int | None, top_p: float, min_p: float, seed: Any
) -> None:
    """Reject sampling options that are out of range."""
    greedy = "above 0; use greedy search for the most likely output"
    is_seed = isinstance(seed, SupportsIndex) and abs(index(seed)) < MAX_SEED
    for name, value, good, wanted in (
        ("temperature", temperature, temperature > 0, greedy),
        ("temperature", temperature, LEAST <= temperature <= MOST, f"from {LEAST:f} to {MOST:.0f}"),
        ("top_k", top_k, top_k is None or top_k >= 1, "at least 1"),
        ("top_p", top_p, 0 < top_p <= 1, "above 0 and at most 1"),
        ("min_p", min_p, 0 <= min_p <= 1, "from 0 to 1"),
        ("seed", seed, is_seed, "a whole number below 2¹²⁷"),
    ):
        if not good:
            raise RegardError(f"{name} must be {wanted}; got {value}")
