"""The same answer whatever the batch: close calls are decided alone, in grouped searches too."""

import pytest
import torch

from regard.inference import search_all
from regard.ragged import Ragged
from regard.search import (
    Beam,
    Greedy,
    LengthPenalty,
    LexicalConstraints,
    Sampling,
    batch_invariant,
    hypothesis,
    length_batches,
)
from tests.search.trees import END, Chance, made, ragged, sources

SEARCHES = {
    "greedy": Greedy(),
    "beam": Beam(3, n_best=2, length_penalty=LengthPenalty(0.7)),
    "sampling": Sampling(2),
    "required": Beam(3, required=LexicalConstraints([[3]])),
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


class Counted:
    """A search that keeps how many sources it was asked for at a time."""

    def __init__(self, search) -> None:
        self.search, self.counts = search, []

    def __call__(self, model, source: Ragged, length_limits):
        self.counts.append(len(source))
        return self.search(model, source, length_limits)


def said(found) -> list[list[list[int]]]:
    return [[one.ids for one in some.hypotheses] for some in found]


def bare(asked) -> list[list[int]]:
    """Sources as search_all wants them: it puts the end itself."""
    return [list(source[:-1]) for source in asked]


def test_nothing_close_nothing_again():
    search, asked = Counted(Greedy()), sources(7)
    batch_invariant(search, Chance(6), ragged(*asked), torch.full((7,), 8))
    assert search.counts == [7]


@every_search
def test_what_is_close_is_searched_alone_and_that_answer_counts(search, monkeypatch):
    monkeypatch.setattr(hypothesis, "NEAR_TIE", 1e9)
    asked, length_limits = sources(5), torch.tensor([3, 4, 5, 6, 7])
    counted, model = Counted(search), Chance(6, noise=0.5)  # so much that company matters
    found = batch_invariant(counted, model, ragged(*asked), length_limits)
    assert counted.counts == [5, 1, 1, 1, 1, 1]
    alone = [
        search(model, ragged(source), length_limits[i : i + 1])[0] for i, source in enumerate(asked)
    ]
    assert found == alone
    assert said(search(model, ragged(*asked), length_limits)) != said(
        alone
    )  # else nothing was settled


@every_search
def test_a_source_that_is_alone_is_not_searched_twice(search, monkeypatch):
    monkeypatch.setattr(hypothesis, "NEAR_TIE", 1e9)
    counted = Counted(search)
    batch_invariant(counted, Chance(6), ragged((3, END)), torch.tensor([5]))
    assert counted.counts == [1]


@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "sampling"])
def test_ties_are_seen_as_close(name):
    """Not by sampling, where every token has noise of its own."""
    found = SEARCHES[name](Chance(6, steps=1), ragged(*sources(12)), torch.full((12,), 6))
    assert sum(some.is_close for some in found) > 3


def test_a_tie_is_close_even_where_too_few_answers_were_found():
    """At the length limit, a beam with fewer than `best` outputs still records near-ties."""

    def dead(scores, said):  # after 3 nothing may follow
        return scores.masked_fill((said[:, -1:] == 3).any(1, keepdim=True), float("-inf"))

    beam = Beam(2, n_best=2, constraints=(dead,))
    found = beam(Chance(6, steps=1), ragged(*sources(30)), torch.full((30,), 2))
    few = [some for some in found if len(some.hypotheses) < 2]
    assert few
    assert any(some.is_close for some in few)
    assert all(some.margin == some.margin for some in found)


@pytest.mark.parametrize("coarse", [0, 2])
@every_search
def test_noise_of_the_batch_changes_no_answer(search, coarse):
    """Logits that move by 1e-6 with the size of the batch, with many ties and with none."""
    asked = bare(sources(24))
    model = Chance(6, noise=1e-6, end=1.0, steps=coarse)
    expected = said(search_all(search, model, asked, most=6))
    order = torch.randperm(24).tolist()
    shuffled = said(search_all(search, model, [asked[i] for i in order], most=6))
    assert [shuffled[order.index(i)] for i in range(24)] == expected
    for size in (1, 7):
        batches = [asked[i : i + size] for i in range(0, 24, size)]
        assert [
            one for some in batches for one in said(search_all(search, model, some, most=6))
        ] == expected
    assert said(search_all(search, model, asked, most=6, tokens=20)) == expected


@pytest.mark.parametrize(("family", "search"), [("swift", Beam(4)), ("recurrent", Greedy())])
def test_real_models_answer_the_same_in_batches_of_any_size(family, search):
    model, asked = made(family, 9, 9), bare(sources(14))
    expected = said(search_all(search, model, asked, most=6))
    for size in (1, 5):
        batches = [asked[i : i + size] for i in range(0, 14, size)]
        assert [
            one for some in batches for one in said(search_all(search, model, some, most=6))
        ] == expected


def test_groups_hold_all_once_short_before_long_within_the_budget():
    lengths = torch.randint(1, 30, (200,)).tolist()
    parts = list(length_batches(lengths, 100))
    assert sorted(place for part in parts for place in part) == list(range(200))
    for part in parts:
        assert len(part) == 1 or len(part) * max(lengths[place] for place in part) <= 100
    max_length = [max(lengths[place] for place in part) for part in parts]
    assert max_length == sorted(max_length)
    assert list(length_batches([500, 3], 100)) == [[1], [0]]  # one that is too long comes alone


def test_no_sources_give_no_answers():
    assert search_all(Greedy(), Chance(6), []) == []
