"""Search with an ensemble of both directions: candidates of each, ranked by all of its members.

Members that generate a target from its end make other errors at its beginning and its end than
those that start there. Each side proposes the hypotheses of its own search, and both score all of
them (Liu et al. 2016, "Agreement on Target-bidirectional LSTMs"). The log-probability of a token is
the mean over members, so that

    log p(target | source) = (n · log p_forward + m · log p_reversed) / (n + m)

for n members that generate forward and m that generate reversed targets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from regard.inference.engines import search_all
from regard.models import Ensemble
from regard.search import Beam, Greedy, Search
from regard.search.hypothesis import NEAR_TIE, Hypothesis
from regard.search.search_batches import BATCH_TOKENS, length_batches
from regard.teacher_forcing import target_logps
from regard.text.template import Template

Ids = Sequence[int]
Hypotheses = Sequence[Hypothesis]


def search_both(
    search: Search,
    model: Ensemble,
    sources: Sequence[Ids],
    *,
    searched: Ensemble,
    template: Template,
    **options: Any,
) -> list[Sequence[Hypothesis]]:
    """The hypotheses of each source, best first; `searched` is the inference copy of the model, and
    `options` are those of `search_all`.

    Constraints and samples are those of the forward members: with them, the reversed members only
    add to the log-probabilities, and the order stays.
    """
    if not _is_unconstrained(search):
        found = search_all(search, searched, sources, template=template, **options)
        candidates = [[one.ids for one in result.hypotheses] for result in found]
        rows = score_candidates(model, sources, candidates, template)
        return [
            [replace(one, logps=row) for one, row in zip(result.hypotheses, scored, strict=True)]
            for result, scored in zip(found, rows, strict=True)
        ]
    wide = replace(search, n_best=search.size) if isinstance(search, Beam) else search
    proposed = [
        [one.hypotheses for one in search_all(wide, side, sources, template=order, **options)]
        for side, order in _directions(searched, template)
    ]
    candidates = [
        list(map(list, dict.fromkeys(tuple(one.ids) for side in sides for one in side)))
        for sides in zip(*proposed, strict=True)
    ]
    rows = score_candidates(model, sources, candidates, template, proposed)
    return [
        _rank(search, model, source, some, scored, template)
        for source, some, scored in zip(sources, candidates, rows, strict=True)
    ]


def _is_unconstrained(search: Search) -> TypeGuard[Greedy | Beam]:
    """Whether no constraint or sample decides the outputs."""
    if isinstance(search, Beam) and search.required is not None:
        return False
    return isinstance(search, Greedy | Beam) and not search.constraints


def score_pairs(
    model: Ensemble, sources: Sequence[Ids], targets: Sequence[Ids], template: Template
) -> list[list[float]]:
    """The log-probability of each target token and of END, for each pair: the mean of both
    directions, weighted by their members."""
    scored = [
        target_logps(side, sources, targets, order) for side, order in _directions(model, template)
    ]
    return [_mean(model, forward, back) for forward, back in zip(*scored, strict=True)]


def score_candidates(
    model: Ensemble,
    sources: Sequence[Ids],
    candidates: Sequence[Sequence[Ids]],
    template: Template,
    proposed: Sequence[Sequence[Hypotheses]] = ((), ()),
) -> list[list[list[float]]]:
    """The log-probabilities of the candidates of each source. Of those that a direction proposed,
    its search has them already."""
    pairs = [(i, tuple(ids)) for i, some in enumerate(candidates) for ids in some]
    known = [
        {(i, tuple(one.ids)): one.logps for i, some in enumerate(found) for one in some}
        for found in proposed
    ]
    for (side, order), scored in zip(_directions(model, template), known, strict=True):
        missing = [pair for pair in pairs if pair not in scored]
        for batch in length_batches([len(sources[i]) + len(ids) + 2 for i, ids in missing],
                                    BATCH_TOKENS):  # fmt: skip
            some = [missing[place] for place in batch]
            texts = [sources[i] for i, _ in some], [list(ids) for _, ids in some]
            scored |= zip(some, target_logps(side, *texts, order), strict=True)
    rows = (_mean(model, *(scored[pair] for scored in known)) for pair in pairs)
    return [[next(rows) for _ in some] for some in candidates]


def _directions(model: Ensemble, template: Template) -> list[tuple[Ensemble, Template]]:
    """The members of each direction with their template, forward ones first."""
    other = model.reversed_ensemble
    assert other is not None
    return [(model, template), (other, replace(template, reversed=not template.reversed))]


def _mean(model: Ensemble, forward: Sequence[float], back: Sequence[float]) -> list[float]:
    """The mean log-probabilities of all members."""
    counts = len(model.members), len(model.reversed_members)
    return [
        (counts[0] * a + counts[1] * b) / sum(counts) for a, b in zip(forward, back, strict=True)
    ]


def _rank(
    search: Greedy | Beam,
    model: Ensemble,
    source: Ids,
    candidates: Sequence[list[int]],
    rows: Sequence[list[float]],
    template: Template,
) -> Sequence[Hypothesis]:
    """The best candidates, by log-probability over the length penalty of the search. Near-ties
    are decided by the candidates of this source alone, so that no output depends on the batch."""
    count = search.n_best if isinstance(search, Beam) else 1
    ranked = _sort(search, candidates, rows)
    scores = [one.score for one in ranked[: count + 1]] + [-math.inf]
    if any(a - b < NEAR_TIE for a, b in itertools.pairwise(scores)):
        alone = sorted(candidates)
        ranked = _sort(search, alone, score_pairs(model, [source] * len(alone), alone, template))
    return ranked[:count]


def _sort(
    search: Greedy | Beam, candidates: Sequence[list[int]], rows: Sequence[list[float]]
) -> list[Hypothesis]:
    """Candidates as hypotheses, best first; equal ones by their ids."""
    divisor = search.length_penalty.divisor if isinstance(search, Beam) else lambda length: 1.0
    found = [
        Hypothesis(ids, row, sum(row) / divisor(len(row)))
        for ids, row in zip(candidates, rows, strict=True)
    ]
    return sorted(found, key=lambda one: (-one.score, one.ids))
