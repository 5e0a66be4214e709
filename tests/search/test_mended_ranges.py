"""Numbers that no search can keep to are refused in one line; those at the edge of their range
still work.
"""

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.search import Beam, Greedy, LengthPenalty, Sampling
from regard.search.constraints import max_length, min_length, repetition_penalty
from tests.search.trees import Chance, ragged, sources

NAN, INF = float("nan"), float("inf")


def answers(search) -> list[list[int]]:
    found = search(Chance(6, end=-1.0), ragged(*sources(4)), torch.full((4,), 8))
    return [one.ids for some in found for one in some.hypotheses]


@pytest.mark.parametrize("alpha", [NAN, INF, -INF, 1e3, -1e3])
@pytest.mark.parametrize("kind", ["power", "gnmt"])
def test_a_length_penalty_that_no_number_holds_is_refused(alpha, kind):
    with pytest.raises(
        RegardError, match=f"^the length penalty α must be between -10 and 10; got {alpha}$"
    ):
        LengthPenalty(alpha, kind)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_length_is_looked_at_by_every_search(beam):
    with pytest.raises(
        RegardError, match=r"^the length penalty α must be between -10 and 10; got nan$"
    ):
        regard.load("spelling", device="cpu").search(beam=beam, length_penalty=NAN)


@pytest.mark.parametrize("penalty", [NAN, INF, 1e39, 1e-50])
def test_a_repetition_penalty_that_float32_cannot_hold_is_refused(penalty):
    wanted = (
        rf"^repetition_penalty must be between 0.000001 and 1000000 \(1 = off\); got {penalty}$"
    )
    with pytest.raises(RegardError, match=wanted.replace("+", r"\+")):
        repetition_penalty(penalty)


@pytest.mark.parametrize("rule", [min_length, max_length])
def test_an_answer_of_less_than_no_tokens_is_refused(rule):
    with pytest.raises(RegardError, match=f"^{rule.__name__} must be at least 0; got -1$"):
        rule(-1)


@pytest.mark.parametrize("temperature", [INF, 1e300, 1e-300])
def test_a_temperature_that_float32_cannot_hold_is_refused(temperature):
    with pytest.raises(RegardError) as refused:
        Sampling(temperature=temperature)
    assert str(refused.value) == f"temperature must be from 0.000001 to 1000000; got {temperature}"


def test_the_edges_of_every_range_can_be_searched_with():
    for alpha in (-10.0, 10.0):
        assert len(answers(Beam(3, length_penalty=LengthPenalty(alpha)))) == 4
    for penalty in (1e-6, 1e6):
        assert len(answers(Greedy((repetition_penalty(penalty),)))) == 4
    for temperature in (1e-6, 1e6):
        assert len(answers(Sampling(2, temperature))) == 8
    assert answers(Greedy((max_length(0),))) == [[]] * 4
    assert answers(Greedy((min_length(0),))) == answers(Greedy())
