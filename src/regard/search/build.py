"""Build a search from decoding options: greedy, beam search or sampling, with its constraints."""

from __future__ import annotations

from regard.decoding_options import DecodingOptions
from regard.search.beam import Beam
from regard.search.constraint_parsing import parse_constraints, parse_required
from regard.search.greedy import Greedy
from regard.search.hypothesis import Search
from regard.search.length_penalty import LengthPenalty
from regard.search.sampling import Sampling
from regard.text import Tokenizer


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
