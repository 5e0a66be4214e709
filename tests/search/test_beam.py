"""Beam search against greedy search, against all sentences there are, and against a beam search
that never stops.
"""

import itertools

import pytest
import torch

from regard.errors import RegardError
from regard.search import Beam, BeamSearch, Greedy, LengthPenalty
from tests.search.trees import (
    END,
    FAMILIES,
    Chance,
    following,
    forced,
    made,
    patient_beam,
    ragged,
    ranked,
    sentences,
    sources,
)

PENALTIES = {
    "none": LengthPenalty(0.0),
    "soft": LengthPenalty(0.7),
    "mean": LengthPenalty(1.0),
    "short": LengthPenalty(-0.5),
    "gnmt": LengthPenalty(0.9, "gnmt"),
}
families = pytest.mark.parametrize("family", FAMILIES)
penalties = pytest.mark.parametrize("length", PENALTIES.values(), ids=PENALTIES)


def power(length: LengthPenalty):
    """The penalty, written out again."""
    if length.kind == "gnmt":
        return lambda n: ((5 + n) / 6) ** length.alpha
    return lambda n: n**length.alpha


def assert_same(found, expected, tolerance=1e-5):
    assert [tuple(one.ids) for one in found.hypotheses] == [said for _, said in expected]
    assert [one.score for one in found.hypotheses] == pytest.approx(
        [score for score, _ in expected], abs=tolerance
    )


def test_a_penalty_by_hand():
    assert LengthPenalty(0.0).divisor(7) == 1
    assert LengthPenalty(1.0).divisor(7) == 7
    assert LengthPenalty(-1.0).divisor(4) == 0.25
    assert LengthPenalty(2.0, "gnmt").divisor(7) == 4
    with pytest.raises(
        RegardError, match=r"^unknown length penalty 'gnnt'; did you mean 'gnmt'\?$"
    ):
        LengthPenalty(1.0, "gnnt")


@families
def test_a_beam_of_one_is_greedy(family):
    model, asked = made(family, 9, 9), ragged(*sources(12))
    length_limits = torch.arange(12) % 5 + 3
    greedy, beam = Greedy()(model, asked, length_limits), Beam(1)(model, asked, length_limits)
    assert [one.hypotheses[0].ids for one in beam] == [one.hypotheses[0].ids for one in greedy]
    assert len({tuple(one.hypotheses[0].ids) for one in beam}) > 4  # else nothing was compared
    for one, other in zip(beam, greedy, strict=True):
        assert one.hypotheses[0].logps == pytest.approx(other.hypotheses[0].logps, abs=1e-5)


@penalties
@families
def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all(family, length):
    model, asked, limit = made(family, 9, 4), sources(2), 4
    found = Beam(120, n_best=7, length_penalty=length)(
        model, ragged(*asked), torch.full((2,), limit)
    )
    for source, some in zip(asked, found, strict=True):
        every = list(sentences(following(model, source, limit), limit))
        assert len(every) == 1 + 3 + 9 + 27 + 81
        assert_same(some, ranked(every, power(length))[:7])


@pytest.mark.parametrize(
    "length", [LengthPenalty(1.0), LengthPenalty(0.9, "gnmt")], ids=["mean", "gnmt"]
)
@families
def test_every_number_is_the_teacher_forced_one(family, length):
    model, asked = made(family, 9, 9), sources(3)
    found = Beam(4, n_best=4, length_penalty=length)(model, ragged(*asked), torch.full((3,), 6))
    if family != "swift":
        model.double()  # the truth
    for source, some in zip(asked, found, strict=True):
        assert len(some.hypotheses) == 4
        for one in some.hypotheses:
            assert one.logps == pytest.approx(forced(model, source, tuple(one.ids)), abs=1e-5)
            assert one.logp == sum(one.logps)
            assert one.score == pytest.approx(one.logp / power(length)(len(one.ids) + 1), abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0, 2.5, -1.0])
@pytest.mark.parametrize(("size", "best"), [(1, 1), (2, 1), (3, 3), (5, 2)])
def test_stopping_early_changes_nothing(size, best, alpha):
    for end, seed in itertools.product((-1.0, 1.0, 4.0), range(2)):
        model, asked = Chance(6, seed=seed, end=end), sources(10, seed=seed)
        length_limits = [i % 7 for i in range(10)]
        found = Beam(size, best, LengthPenalty(alpha))(
            model, ragged(*asked), torch.tensor(length_limits)
        )
        for source, limit, some in zip(asked, length_limits, found, strict=True):
            expected = patient_beam(model.next(source), size, lambda n: n**alpha, limit)[:best]
            assert_same(some, expected)
            scores = [one.score for one in some.hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({tuple(one.ids) for one in some.hypotheses}) == len(scores)


def test_it_does_stop_early_and_finished_sources_leave():
    model, asked = Chance(6, end=6.0), sources(10)
    Beam(2)(model, ragged(*asked), torch.full((10,), 50))
    assert model.sizes[0] == 10  # one beginning each
    assert len(model.sizes) < 10
    assert model.sizes[-1] < 2 * 10 * 0.75


@pytest.mark.parametrize("vocabulary", [3, 4])
def test_a_vocabulary_smaller_than_the_beam(vocabulary):
    model, asked = Chance(vocabulary), sources(4)
    found = Beam(50, n_best=9)(model, ragged(*asked), torch.tensor([0, 1, 2, 3]))
    for limit, (source, some) in enumerate(zip(asked, found, strict=True)):
        assert_same(some, ranked(sentences(model.next(source), limit), lambda n: 1)[:9])
    assert [one.ids for one in found[0].hypotheses] == [[]]


def test_fewer_answers_than_asked_for_are_no_reason_to_think_it_close_or_clear():
    """Where the tree holds fewer than `best` answers, the margin is still that of the decisions
    taken.
    """
    model, asked = Chance(5), sources(6)
    for some in Beam(3, n_best=3)(model, ragged(*asked), torch.full((6,), 1)):
        assert some.margin == some.margin
    (alone,) = Beam(3, n_best=3)(Chance(5, steps=1), ragged(asked[0]), torch.tensor([1]))
    assert alone.margin >= 0


@families
def test_a_source_in_any_company_is_answered_the_same(family):
    model, asked, beam = (
        made(family, 9, 9),
        sources(4),
        Beam(3, n_best=2, length_penalty=LengthPenalty(1.0)),
    )
    length_limits = torch.tensor([2 * len(source) for source in asked])
    together = beam(model, ragged(*asked), length_limits)
    backwards = beam(model, ragged(*asked[::-1]), length_limits.flip(0))[::-1]
    for i, source in enumerate(asked):
        (alone,) = beam(model, ragged(source), length_limits[i : i + 1])
        for other in (together[i], backwards[i]):
            assert_same(other, [(one.score, tuple(one.ids)) for one in alone.hypotheses])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_what_is_certain_grows_and_is_how_the_answer_begins(alpha):
    early = 0
    for source in sources(12):
        beams = BeamSearch(
            Beam(3, length_penalty=LengthPenalty(alpha)),
            Chance(6, end=-2.0),
            ragged(source),
            torch.tensor([12]),
        )
        prefixes: list[list[int]] = [[]]
        for _ in beams:
            sure = beams.committed_prefix()
            assert sure[: len(prefixes[-1])] == prefixes[-1]
            prefixes.append(sure)
        answer = beams.results()[0].hypotheses[0].ids
        assert prefixes[-1] == answer
        early += any(len(sure) > 0 for sure in prefixes[:-2])
    assert early > 2  # something is certain before the end


def test_certain_speaks_of_the_first_source_even_after_it_has_left():
    asked = sources(12)
    for first in range(12):
        order = [asked[first], *asked[:first], *asked[first + 1 :]]
        beams = BeamSearch(Beam(2), Chance(6, end=1.0), ragged(*order), torch.full((12,), 12))
        for _ in beams:
            committed_prefix = beams.committed_prefix()
        assert committed_prefix == beams.results()[0].hypotheses[0].ids


def test_a_model_of_numbers_that_are_none_still_stops():
    class Broken(Chance):
        def logits(self, source, said):
            return super().logits(source, said) * float("nan")

    assert Beam(2)(Broken(6), ragged((3, END), (4, END)), torch.tensor([4, 2]))[0].hypotheses == []


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_a_model_in_64_bits_is_searched_too(family):
    model, asked, length_limits = made(family, 9, 9), ragged(*sources(4)), torch.full((4,), 6)
    single = Beam(3)(model, asked, length_limits)
    for one, other in zip(single, Beam(3)(model.double(), asked, length_limits), strict=True):
        assert_same(one, [(h.score, tuple(h.ids)) for h in other.hypotheses])


@pytest.mark.parametrize(("size", "best"), [(0, 1), (4, 5), (4, 0)])
def test_a_beam_that_cannot_give_so_many_is_refused(size, best):
    with pytest.raises(
        RegardError, match=rf"^n_best must be between 1 and the beam size {size}; got {best}$"
    ):
        Beam(size, best)


def test_few_candidates_are_ranked_as_many_are():
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
