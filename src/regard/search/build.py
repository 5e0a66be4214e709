"""Build a search algorithm from decoding options: greedy, beam search or sampling."""

from __future__ import annotations

from dataclasses import replace

from regard.search import constraints
from regard.search.beam import Beam
from regard.search.constraints import Constraint, LexicalConstraints, max_length, min_length
from regard.search.greedy import Greedy
from regard.search.hypothesis import LengthPenalty
from regard.search.sampling import Sampling
from regard.search.search_batches import Search
from regard.search.token_options import TokenOptions
from regard.text.template import DEFAULT_TEMPLATE, Template


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
            template=options.template,
        )
    if options.beam == 1 and not options.required:
        return Greedy(found, options.template)
    required = None
    if options.required:
        required = LexicalConstraints(
            options.required, options.required_opening, end=options.template.end
        )
    penalty = LengthPenalty(options.length_penalty)
    return Beam(options.beam, options.n_best, penalty, found, required, options.template)


def search_template(search: Search | None, template: Template) -> Template:
    """The template of a search if it names one, otherwise that of the model."""
    if isinstance(search, Greedy | Beam | Sampling) and search.template != DEFAULT_TEMPLATE:
        return search.template
    return template


def with_template(search: Search, template: Template) -> Search:
    """The same search with the special tokens of a template; one's own search stays as it is."""
    if not isinstance(search, Greedy | Beam | Sampling) or search.template == template:
        return search
    constraints = tuple(
        replace(one, end=template.end) if isinstance(one, min_length | max_length) else one
        for one in search.constraints
    )
    search = replace(search, constraints=constraints, template=template)
    if isinstance(search, Beam) and search.required is not None:
        words = search.required
        required = LexicalConstraints(words.sequences, words.opening, end=template.end)
        return replace(search, required=required)
    return search


def build_constraints(options: TokenOptions) -> tuple[Constraint, ...]:
    """The constraints of any search."""
    found: list[Constraint] = []
    if options.min_length:
        found.append(min_length(options.min_length, options.template.end))
    if options.max_length is not None:
        found.append(max_length(options.max_length, options.template.end))
    if options.prefix:
        found.append(constraints.prefix(options.prefix))
    if options.ban:
        found.append(constraints.ban(options.ban))
    if options.repetition_penalty != 1.0:
        found.append(constraints.repetition_penalty(options.repetition_penalty))
    if options.no_repeat_ngram:
        found.append(constraints.no_repeat_ngram(options.no_repeat_ngram))
    return tuple(found)
