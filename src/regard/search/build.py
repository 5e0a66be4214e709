"""Build a search algorithm from decoding options: greedy, beam search or sampling."""

from __future__ import annotations

from regard.search import constraints
from regard.search.beam import Beam
from regard.search.constraints import Constraint, LexicalConstraints
from regard.search.greedy import Greedy
from regard.search.hypothesis import LengthPenalty
from regard.search.sampling import Sampling
from regard.search.search_batches import Search
from regard.search.token_options import TokenOptions


def build_search(options: TokenOptions) -> Search:
    """The search that the options describe."""
    found = build_constraints(options)
    if options.sample:
        return Sampling(
            count=options.n_best,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            seed=options.seed,
            constraints=found,
        )
    if options.beam == 1 and not options.required:
        return Greedy(found)
    required = None
    if options.required:
        required = LexicalConstraints(options.required, options.required_opening)
    penalty = LengthPenalty(options.length_penalty)
    return Beam(options.beam, options.n_best, penalty, found, required)


def build_constraints(options: TokenOptions) -> tuple[Constraint, ...]:
    """The constraints of any search."""
    found: list[Constraint] = []
    if options.min_length:
        found.append(constraints.min_length(options.min_length))
    if options.max_length is not None:
        found.append(constraints.max_length(options.max_length))
    if options.prefix:
        found.append(constraints.prefix(options.prefix))
    if options.ban:
        found.append(constraints.ban(options.ban))
    if options.repetition_penalty != 1.0:
        found.append(constraints.repetition_penalty(options.repetition_penalty))
    if options.no_repeat_ngram:
        found.append(constraints.no_repeat_ngram(options.no_repeat_ngram))
    return tuple(found)
