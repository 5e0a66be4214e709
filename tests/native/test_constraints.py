"""Constraints and sampling on the native engine against torch."""

from typing import Any

import pytest
import torch

from regard.errors import RegardError
from regard.inference import search_all
from regard.native import NativeOptions
from regard.search import Beam, Greedy, LexicalConstraints, Sampling, constraints
from tests.native.native_models import (
    LIMIT,
    TINY,
    assert_same_results,
    limits_of,
    random_pair,
    random_sources,
)

CONSTRAINTS: list[tuple[dict[str, Any], Any]] = [
    ({"min_length": 6}, constraints.min_length(6)),
    ({"max_length": 3}, constraints.max_length(3)),
    ({"prefix": [5, 7, 5]}, constraints.prefix([5, 7, 5])),
    ({"ban": [[4], [6, 7], [8, 8, 9]]}, constraints.ban([[4], [6, 7], [8, 8, 9]])),
    ({"repetition_penalty": 3.0}, constraints.repetition_penalty(3.0)),
    ({"repetition_penalty": 0.5}, constraints.repetition_penalty(0.5)),
    ({"no_repeat_ngram": 1}, constraints.no_repeat_ngram(1)),
    ({"no_repeat_ngram": 2}, constraints.no_repeat_ngram(2)),
]


@pytest.mark.parametrize(("option", "constraint"), CONSTRAINTS, ids=lambda x: str(x)[:40])
def test_constraints(option: dict[str, Any], constraint: Any):
    model, native = random_pair(TINY, seed=1)
    assert_same_results(model, native, Greedy((constraint,)), NativeOptions(**option))
    assert_same_results(
        model,
        native,
        Beam(4, 3, constraints=(constraint,)),
        NativeOptions(beam=4, n_best=3, **option),
    )


@pytest.mark.parametrize(
    ("required", "opening"), [([[4]], None), ([[5, 6], [9]], None), ([[5, 6, 7]], [[8, 6, 7]])]
)
def test_required_words(required: list[list[int]], opening: list[list[int]] | None):
    model, native = random_pair(TINY, seed=2)
    sources = random_sources()
    search = Beam(5, 2, required=LexicalConstraints(required, opening))
    expected = search_all(search, model, sources, max_length=LIMIT)
    options = NativeOptions(beam=5, n_best=2, required=required, required_opening=opening)
    found = native.search(sources, limits_of(sources), options)
    equal = 0
    for ours, theirs in zip(found, expected, strict=True):  # torch reports no margin here
        equal += [one.ids for one in ours] == [list(one.ids) for one in theirs.hypotheses]
        for one in ours:
            text = " ".join(map(str, one.ids))
            assert all(" ".join(map(str, words)) in text for words in required) or opening
    assert equal == len(sources)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"temperature": 2.0, "top_k": 6, "top_p": 0.9, "min_p": 0.05, "seed": 99},
    ],
    ids=str,
)
def test_samples_are_those_of_torch(options: dict[str, Any]):
    model, native = random_pair(TINY, seed=6)
    assert_same_results(
        model, native, Sampling(3, **options), NativeOptions(n_best=3, sample=True, **options)
    )


def test_seeds_are_those_of_torch():
    source = [5, 3, 8, 2]
    expected = Sampling(4, seed=12)._seeds(_ragged(source)).tolist()
    assert NativeOptions(n_best=4, seed=12).sample_seeds(source) == expected


def _ragged(ids: list[int]) -> Any:
    from regard.ragged import Ragged

    return Ragged.of([torch.tensor(ids)])


def test_constraints_that_nothing_satisfies_raise():
    _, native = random_pair(TINY)
    options = NativeOptions(min_length=5, max_length=2)
    with pytest.raises(RegardError, match="no output satisfies all constraints"):
        native.search([[4]], [10], options)
    assert native.search([[4]], [10], NativeOptions(beam=4, min_length=5, max_length=2)) == [[]]
