"""Batch invariance: margins, near-ties, and batches by length (see also contracts/test_search)."""

import pytest
import torch

from regard.inference import search_all
from regard.search import (
    Beam,
    Greedy,
    LexicalConstraints,
    batch_invariant,
    length_batches,
)
from tests.contracts.test_search import CountedSearch, outputs_of
from tests.search.known_models import RandomModel, make_model, ragged, random_sources


def test_without_near_ties_nothing_is_searched_again():
    search, sources = CountedSearch(Greedy()), random_sources(7)
    batch_invariant(search, RandomModel(6), ragged(*sources), torch.full((7,), 8))
    assert search.counts == [7]


@pytest.mark.parametrize(
    "search",
    [Greedy(), Beam(3, n_best=2), Beam(3, required=LexicalConstraints([[3]]))],
    ids=["greedy", "beam", "lexical"],
)
def test_ties_have_a_small_margin(search):
    """Not in sampling, where every token has its own noise."""
    sources = ragged(*random_sources(12))
    results = search(RandomModel(6, levels=1), sources, torch.full((12,), 6))
    assert sum(result.is_close for result in results) > 3


def test_ties_count_where_too_few_outputs_were_found():
    """At the length limit, a beam with fewer than `n_best` outputs still records near-ties."""

    def dead_end(scores, ids):  # no token is allowed after 3
        return scores.masked_fill((ids[:, -1:] == 3).any(1, keepdim=True), float("-inf"))

    beam = Beam(2, n_best=2, constraints=(dead_end,))
    results = beam(RandomModel(6, levels=1), ragged(*random_sources(30)), torch.full((30,), 2))
    few = [result for result in results if len(result.hypotheses) < 2]
    assert few
    assert any(result.is_close for result in few)
    assert all(result.margin == result.margin for result in results)


@pytest.mark.parametrize(("name", "search"), [("fast", Beam(4)), ("recurrent", Greedy())])
def test_batches_of_any_size_give_the_same_outputs(name: str, search):
    model = make_model(name, 9, 9)
    sources = [list(source[:-1]) for source in random_sources(14)]  # search_all appends END
    expected = outputs_of(search_all(search, model, sources, max_length=6))
    for size in (1, 5):
        found = []
        for i in range(0, 14, size):
            found += outputs_of(search_all(search, model, sources[i : i + size], max_length=6))
        assert found == expected


def test_length_batches_are_sorted_and_within_the_budget():
    lengths = torch.randint(1, 30, (200,)).tolist()
    batches = list(length_batches(lengths, 100))
    assert sorted(index for batch in batches for index in batch) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= 100
    longest = [max(lengths[index] for index in batch) for batch in batches]
    assert longest == sorted(longest)
    assert list(length_batches([500, 3], 100)) == [[1], [0]]  # too long for the budget: alone
