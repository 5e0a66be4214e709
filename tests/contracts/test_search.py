"""Contract of search algorithms: model log-probabilities, constraints, and batch invariance."""

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
)
from regard.search.constraints import (
    ban,
    max_length,
    min_length,
    no_repeat_ngram,
    prefix,
    repetition_penalty,
)
from tests.search.known_models import (
    END,
    MODELS,
    RandomModel,
    make_model,
    ragged,
    random_sources,
    teacher_forced,
)

VOCABULARY = 6
SEARCHES = {
    "greedy": lambda *constraints: Greedy(constraints),
    "beam": lambda *constraints: Beam(
        3, n_best=2, length_penalty=LengthPenalty(0.7), constraints=constraints
    ),
    "sampling": lambda *constraints: Sampling(2, constraints=constraints),
    "lexical": lambda *constraints: Beam(
        3, constraints=constraints, required=LexicalConstraints([[4]])
    ),
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def outputs_of(results) -> list[list[list[int]]]:
    """The ids of all hypotheses of each source."""
    return [[each.ids for each in result.hypotheses] for result in results]


def search_random_model(search, *, end: float = -1.0, limit: int = 8, count: int = 12):
    """All outputs of a search; every log-probability in them must be the model's own."""
    model, sources = RandomModel(VOCABULARY, end=end), random_sources(count)
    results = search(model, ragged(*sources), torch.full((count,), limit))
    for source, result in zip(sources, results, strict=True):
        assert result.hypotheses
        for each in result.hypotheses:
            ids, next_logps = [*each.ids, END], model.next_logps(source)
            own = [next_logps(tuple(ids[:at]))[token] for at, token in enumerate(ids)]
            assert each.logps == pytest.approx(own, abs=1e-5)
            assert len(each.ids) <= limit
    return [ids for outputs in outputs_of(results) for ids in outputs]


def contains(ids, sequence) -> bool:
    return any(tuple(ids[i : i + len(sequence)]) == tuple(sequence) for i in range(len(ids)))


# ---- numbers


@every_search
@pytest.mark.parametrize("name", MODELS)
def test_logps_are_teacher_forced_and_limits_hold(name: str, search):
    model, sources = make_model(name, 9, 9), random_sources(6)
    limits = torch.tensor([1, 2, 3, 4, 5, 6])
    results = search()(model, ragged(*sources), limits)
    for source, limit, result in zip(sources, limits.tolist(), results, strict=True):
        assert result.hypotheses
        scores = [each.score for each in result.hypotheses]
        assert isinstance(search(), Sampling) or scores == sorted(scores, reverse=True)
        for each in result.hypotheses:
            expected = teacher_forced(model, source, tuple(each.ids))
            assert each.logps == pytest.approx(expected, abs=1e-5)
            assert each.logp == sum(each.logps)
            assert len(each.ids) <= limit


@every_search
def test_no_sources_give_no_results(search):
    empty = Ragged(torch.empty(0).long(), torch.tensor([0]))
    assert search()(RandomModel(VOCABULARY), empty, torch.empty(0).long()) == []
    assert search_all(search(), RandomModel(VOCABULARY), []) == []


# ---- batch invariance


class CountedSearch:
    """A search that records the number of sources of each call."""

    def __init__(self, search) -> None:
        self.search, self.counts = search, []

    def __call__(self, model, source: Ragged, limits):
        self.counts.append(len(source))
        return self.search(model, source, limits)


@every_search
@pytest.mark.parametrize("name", MODELS)
def test_results_do_not_depend_on_batch_or_order(name: str, search):
    model, sources = make_model(name, 9, 9, sharpness=2.0), random_sources(6)
    limits = torch.tensor([len(source) + 3 for source in sources])
    together = outputs_of(search()(model, ragged(*sources), limits))
    backwards = outputs_of(search()(model, ragged(*sources[::-1]), limits.flip(0)))[::-1]
    alone = [
        outputs_of(search()(model, ragged(source), limits[i : i + 1]))[0]
        for i, source in enumerate(sources)
    ]
    assert together == alone == backwards
    assert len({tuple(outputs[0]) for outputs in together}) > 1  # else nothing was compared


@every_search
def test_near_ties_are_searched_again_alone(search, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hypothesis, "NEAR_TIE", 1e9)
    sources, limits = random_sources(5), torch.tensor([3, 4, 5, 6, 7])
    counted = CountedSearch(search())
    model = RandomModel(VOCABULARY, noise=0.5)  # so large that the batch changes outputs
    results = batch_invariant(counted, model, ragged(*sources), limits)
    assert counted.counts == [5, 1, 1, 1, 1, 1]
    alone = [
        search()(model, ragged(source), limits[i : i + 1])[0] for i, source in enumerate(sources)
    ]
    assert results == alone
    together = search()(model, ragged(*sources), limits)
    assert outputs_of(together) != outputs_of(alone)  # else the second search changed nothing


@every_search
def test_a_single_source_is_searched_once(search, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hypothesis, "NEAR_TIE", 1e9)
    counted = CountedSearch(search())
    batch_invariant(counted, RandomModel(VOCABULARY), ragged((3, END)), torch.tensor([5]))
    assert counted.counts == [1]


@pytest.mark.parametrize("levels", [0, 2])
@every_search
def test_rounding_noise_of_the_batch_changes_no_output(search, levels: int):
    """Logits that change by 1e-6 with the batch size, with many ties and with none."""
    sources = [list(source[:-1]) for source in random_sources(24)]  # search_all appends END
    model = RandomModel(VOCABULARY, noise=1e-6, end=1.0, levels=levels)

    def outputs(batch, **options):
        return outputs_of(search_all(search(), model, batch, max_length=6, **options))

    expected, order = outputs(sources), torch.randperm(24).tolist()
    shuffled = outputs([sources[i] for i in order])
    assert [shuffled[order.index(i)] for i in range(24)] == expected
    for size in (1, 7):
        batches = [sources[i : i + size] for i in range(0, 24, size)]
        assert [each for batch in batches for each in outputs(batch)] == expected
    assert outputs(sources, tokens=20) == expected


# ---- constraints


@every_search
def test_length_constraints_hold(search):
    outputs = search_random_model(search(min_length(2), max_length(4)), end=1.0)
    assert {len(ids) for ids in outputs} == {2, 3, 4}


@every_search
def test_outputs_start_with_the_prefix(search):
    outputs = search_random_model(search(prefix([5, 5, 0])))
    assert all(ids[:3] == [5, 5, 0] for ids in outputs)
    assert len({tuple(ids) for ids in outputs}) > 1


@every_search
def test_a_prefix_may_be_the_whole_output(search):
    source = ragged((3, END))
    (result,) = search(prefix([4, END]))(RandomModel(VOCABULARY), source, torch.tensor([8]))
    assert {tuple(each.ids) for each in result.hypotheses} == {(4,)}


@every_search
def test_banned_sequences_do_not_occur(search):
    sequences = [[3], [4, 5], [0, 0]]
    outputs = search_random_model(search(ban(sequences)), limit=12)
    assert not any(contains(ids, sequence) for ids in outputs for sequence in sequences)
    free = search_random_model(search(), limit=12)
    assert any(contains(ids, sequence) for ids in free for sequence in sequences)


@every_search
@pytest.mark.parametrize("count", [1, 2])
def test_no_ngram_is_repeated(search, count: int):
    for ids in search_random_model(search(no_repeat_ngram(count)), end=-4.0, limit=20):
        grams = [tuple(ids[i : i + count]) for i in range(len(ids) - count + 1)]
        assert len(set(grams)) == len(grams)


@every_search
def test_repetition_penalty_reduces_repetitions(search):
    def repetitions(penalty: float) -> int:
        outputs = search_random_model(search(repetition_penalty(penalty)), end=-3.0)
        return sum(len(ids) - len(set(ids)) for ids in outputs)

    assert repetitions(6.0) < repetitions(0.3)
