"""Beam search against greedy search, all outputs, and beam search without early stopping."""

import itertools

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.search import Beam, BeamSearch, Greedy, LengthPenalty
from tests.search.known_models import (
    END,
    MODELS,
    RandomModel,
    all_next_logps,
    all_outputs,
    exhaustive_beam,
    make_model,
    ragged,
    random_sources,
    ranked,
    teacher_forced,
)

NAN, INF = float("nan"), float("inf")
PENALTIES = {
    "none": LengthPenalty(0.0),
    "soft": LengthPenalty(0.7),
    "mean": LengthPenalty(1.0),
    "short": LengthPenalty(-0.5),
    "gnmt": LengthPenalty(0.9, "gnmt"),
}
every_model = pytest.mark.parametrize("name", MODELS)
penalties = pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)


def divisor(penalty: LengthPenalty):
    """The penalty's divisor, computed independently."""
    if penalty.kind == "gnmt":
        return lambda n: ((5 + n) / 6) ** penalty.alpha
    return lambda n: n**penalty.alpha


def assert_same(result, expected, tolerance=1e-5):
    assert [tuple(each.ids) for each in result.hypotheses] == [ids for _, ids in expected]
    scores = [each.score for each in result.hypotheses]
    assert scores == pytest.approx([score for score, _ in expected], abs=tolerance)


# ---- length penalty


def test_length_penalty_by_hand():
    assert LengthPenalty(0.0).divisor(7) == 1
    assert LengthPenalty(1.0).divisor(7) == 7
    assert LengthPenalty(-1.0).divisor(4) == 0.25
    assert LengthPenalty(2.0, "gnmt").divisor(7) == 4
    with pytest.raises(
        RegardError, match=r"^unknown length penalty 'gnnt'; did you mean 'gnmt'\?$"
    ):
        LengthPenalty(1.0, "gnnt")


@pytest.mark.parametrize("alpha", [NAN, INF, -INF, 1e3, -1e3])
@pytest.mark.parametrize("kind", ["power", "gnmt"])
def test_a_length_penalty_out_of_range_is_refused(alpha: float, kind: str):
    message = f"^the length penalty α must be between -10 and 10; got {alpha}$"
    with pytest.raises(RegardError, match=message):
        LengthPenalty(alpha, kind)


@pytest.mark.parametrize("beam", [1, 4])
def test_every_search_checks_the_length_penalty(beam: int):
    message = r"^the length penalty α must be between -10 and 10; got nan$"
    with pytest.raises(RegardError, match=message):
        regard.load("spelling", device="cpu").search(beam=beam, length_penalty=NAN)


@pytest.mark.parametrize("alpha", [-10.0, 10.0])
def test_length_penalties_at_the_edges_of_the_range_work(alpha: float):
    beam = Beam(3, length_penalty=LengthPenalty(alpha))
    sources = ragged(*random_sources(4))
    results = beam(RandomModel(6, end=-1.0), sources, torch.full((4,), 8))
    assert [len(result.hypotheses) for result in results] == [1] * 4


# ---- results


@every_model
def test_a_beam_of_one_is_greedy(name: str):
    model, sources = make_model(name, 9, 9), ragged(*random_sources(12))
    limits = torch.arange(12) % 5 + 3
    greedy, beam = Greedy()(model, sources, limits), Beam(1)(model, sources, limits)
    assert [each.hypotheses[0].ids for each in beam] == [each.hypotheses[0].ids for each in greedy]
    assert len({tuple(each.hypotheses[0].ids) for each in beam}) > 4  # else nothing was compared
    for one, other in zip(beam, greedy, strict=True):
        assert one.hypotheses[0].logps == pytest.approx(other.hypotheses[0].logps, abs=1e-5)


@penalties
@every_model
def test_a_beam_as_wide_as_the_tree_finds_the_best(name: str, penalty: LengthPenalty):
    model, sources, limit = make_model(name, 9, 4), random_sources(2), 4
    beam = Beam(120, n_best=7, length_penalty=penalty)
    results = beam(model, ragged(*sources), torch.full((2,), limit))
    for source, result in zip(sources, results, strict=True):
        every = list(all_outputs(all_next_logps(model, source, limit), limit))
        assert len(every) == 1 + 3 + 9 + 27 + 81
        assert_same(result, ranked(every, divisor(penalty))[:7])


@pytest.mark.parametrize("kind", ["mean", "gnmt"])
@every_model
def test_scores_are_teacher_forced_logps_over_the_penalty(name: str, kind: str):
    model, sources, penalty = make_model(name, 9, 9), random_sources(3), PENALTIES[kind]
    beam = Beam(4, n_best=4, length_penalty=penalty)
    results = beam(model, ragged(*sources), torch.full((3,), 6))
    if name != "fast":
        model.double()  # more exact expected values
    for source, result in zip(sources, results, strict=True):
        assert len(result.hypotheses) == 4
        for each in result.hypotheses:
            expected = teacher_forced(model, source, tuple(each.ids))
            assert each.logps == pytest.approx(expected, abs=1e-5)
            score = each.logp / divisor(penalty)(len(each.ids) + 1)
            assert each.score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0, 2.5, -1.0])
@pytest.mark.parametrize(("size", "n_best"), [(1, 1), (2, 1), (3, 3), (5, 2)])
def test_early_stopping_changes_no_result(size: int, n_best: int, alpha: float):
    for end, seed in itertools.product((-1.0, 1.0, 4.0), range(2)):
        model, sources = RandomModel(6, seed=seed, end=end), random_sources(10, seed=seed)
        limits = [i % 7 for i in range(10)]
        beam = Beam(size, n_best, LengthPenalty(alpha))
        results = beam(model, ragged(*sources), torch.tensor(limits))
        for source, limit, result in zip(sources, limits, results, strict=True):
            next_logps = model.next_logps(source)
            expected = exhaustive_beam(next_logps, size, lambda n: n**alpha, limit)[:n_best]
            assert_same(result, expected)
            scores = [each.score for each in result.hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({tuple(each.ids) for each in result.hypotheses}) == len(scores)


def test_beam_search_stops_early_and_drops_finished_sources():
    model, sources = RandomModel(6, end=6.0), random_sources(10)
    Beam(2)(model, ragged(*sources), torch.full((10,), 50))
    assert model.sizes[0] == 10  # one hypothesis each
    assert len(model.sizes) < 10
    assert model.sizes[-1] < 2 * 10 * 0.75


@pytest.mark.parametrize("vocabulary", [3, 4])
def test_a_vocabulary_smaller_than_the_beam(vocabulary: int):
    model, sources = RandomModel(vocabulary), random_sources(4)
    results = Beam(50, n_best=9)(model, ragged(*sources), torch.tensor([0, 1, 2, 3]))
    for limit, (source, result) in enumerate(zip(sources, results, strict=True)):
        every = all_outputs(model.next_logps(source), limit)
        assert_same(result, ranked(every, lambda n: 1)[:9])
    assert [each.ids for each in results[0].hypotheses] == [[]]


def test_the_margin_is_finite_where_few_outputs_exist():
    """Where the tree has fewer than `n_best` outputs, the margin is that of the decisions made."""
    model, sources = RandomModel(5), random_sources(6)
    for result in Beam(3, n_best=3)(model, ragged(*sources), torch.full((6,), 1)):
        assert result.margin == result.margin
    tied = RandomModel(5, levels=1)
    (alone,) = Beam(3, n_best=3)(tied, ragged(sources[0]), torch.tensor([1]))
    assert alone.margin >= 0


@every_model
def test_scores_do_not_depend_on_the_batch(name: str):
    model, sources = make_model(name, 9, 9), random_sources(4)
    beam = Beam(3, n_best=2, length_penalty=LengthPenalty(1.0))
    limits = torch.tensor([2 * len(source) for source in sources])
    together = beam(model, ragged(*sources), limits)
    backwards = beam(model, ragged(*sources[::-1]), limits.flip(0))[::-1]
    for i, source in enumerate(sources):
        (alone,) = beam(model, ragged(source), limits[i : i + 1])
        expected = [(each.score, tuple(each.ids)) for each in alone.hypotheses]
        for other in (together[i], backwards[i]):
            assert_same(other, expected)


# ---- committed prefixes


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_committed_prefix_grows_into_the_output(alpha: float):
    early = 0
    for source in random_sources(12):
        beam = Beam(3, length_penalty=LengthPenalty(alpha))
        search = BeamSearch(beam, RandomModel(6, end=-2.0), ragged(source), torch.tensor([12]))
        prefixes: list[list[int]] = [[]]
        for _ in search:
            committed = search.committed_prefix()
            assert committed[: len(prefixes[-1])] == prefixes[-1]
            prefixes.append(committed)
        assert prefixes[-1] == search.results()[0].hypotheses[0].ids
        early += any(len(committed) > 0 for committed in prefixes[:-2])
    assert early > 2  # something is committed before the end


def test_the_committed_prefix_is_that_of_the_first_source():
    sources = random_sources(12)
    for first in range(12):
        order = [sources[first], *sources[:first], *sources[first + 1 :]]
        model = RandomModel(6, end=1.0)
        search = BeamSearch(Beam(2), model, ragged(*order), torch.full((12,), 12))
        for _ in search:
            committed = search.committed_prefix()
        assert committed == search.results()[0].hypotheses[0].ids


# ---- unusual models and options


def test_beam_search_stops_if_logits_are_nan():
    class BrokenModel(RandomModel):
        def logits(self, source, prefix):
            return super().logits(source, prefix) * NAN

    results = Beam(2)(BrokenModel(6), ragged((3, END), (4, END)), torch.tensor([4, 2]))
    assert results[0].hypotheses == []


@pytest.mark.parametrize("name", ["transformer", "recurrent"])
def test_a_model_in_float64_can_be_searched(name: str):
    model, sources, limits = make_model(name, 9, 9), ragged(*random_sources(4)), torch.full((4,), 6)
    single = Beam(3)(model, sources, limits)
    double = Beam(3)(model.double(), sources, limits)
    for one, other in zip(single, double, strict=True):
        assert_same(one, [(each.score, tuple(each.ids)) for each in other.hypotheses])


@pytest.mark.parametrize(("size", "n_best"), [(0, 1), (4, 5), (4, 0)])
def test_an_impossible_n_best_is_refused(size: int, n_best: int):
    message = rf"^n_best must be between 1 and the beam size {size}; got {n_best}$"
    with pytest.raises(RegardError, match=message):
        Beam(size, n_best)


def test_candidates_of_small_batches_are_ranked_like_topk():
    from regard.search import beam

    for seed in range(20):
        torch.manual_seed(seed)
        logps = torch.randn(3, 11).log_softmax(-1)
        allowed = logps.masked_fill(torch.rand(3, 11) < 0.3, float("-inf"))
        scores = torch.randn(1, 3, dtype=torch.float64)
        totals = (allowed.double() + scores.T).flatten()
        found = beam.top_candidates_numpy(allowed, logps, scores.numpy(), 7)
        values, places = totals.topk(7)
        torch.testing.assert_close(torch.from_numpy(found[0][0]), values)
        assert (found[1][0] * 11 + found[2][0]).tolist() == places.tolist()
        torch.testing.assert_close(torch.from_numpy(found[3][0]), logps.flatten()[places].double())
