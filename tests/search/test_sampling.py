"""Sampling: the same seed the same text, the model's own frequencies, and HF's warpers for which
tokens stay.
"""

from collections import Counter

import pytest
import torch
from scipy.stats import chisquare, kstest
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from regard.errors import RegardError
from regard.search import Sampling
from regard.search.gumbel import gumbel
from regard.search.hypothesis import NEAR_TIE as CLOSE
from tests.search.trees import END, Chance, forced, made, ragged, sentences, sources

VOCABULARY = 9


def said(found) -> list[list[list[int]]]:
    return [[one.ids for one in some.hypotheses] for some in found]


def drawn(search: Sampling, scores: torch.Tensor, count: int, step: int = 0) -> torch.Tensor:
    """Tokens drawn from one row of scores by many seeds."""
    return search.draw(scores.expand(count, -1), torch.arange(count), step)[0]


@pytest.mark.parametrize("family", ["swift", "recurrent"])
def test_the_same_seed_gives_the_same_text_in_any_company(family):
    model, asked = made(family, VOCABULARY, VOCABULARY, sharp=1.0), sources(6)
    length_limits = torch.tensor([len(source) + 3 for source in asked])
    search = Sampling(3, seed=4)
    together = said(search(model, ragged(*asked), length_limits))
    assert said(search(model, ragged(*asked), length_limits)) == together
    assert said(search(model, ragged(*asked[::-1]), length_limits.flip(0)))[::-1] == together
    assert [
        said(search(model, ragged(source), length_limits[i : i + 1]))[0]
        for i, source in enumerate(asked)
    ] == together
    assert said(Sampling(3, seed=5)(model, ragged(*asked), length_limits)) != together
    assert (
        len({tuple(ids) for some in together for ids in some}) > 12
    )  # answers to one source differ too


def test_the_first_answers_do_not_depend_on_how_many_or_how_long():
    model, asked = Chance(6, end=-1.0), sources(8)
    few = Sampling(2)(model, ragged(*asked), torch.full((8,), 30))
    many = Sampling(20)(model, ragged(*asked), torch.full((8,), 30))
    assert [some[:2] for some in said(many)] == said(few)
    short = Sampling(2)(model, ragged(*asked), torch.full((8,), 4))
    for one, other in zip(said(short), said(few), strict=True):
        assert [ids[:4] for ids in other] == one


def test_numbers_are_the_models_own_whatever_the_temperature():
    model, asked = made("recurrent", VOCABULARY, VOCABULARY), sources(4)
    for source, some in zip(
        asked,
        Sampling(2, temperature=3.0, top_k=4)(model, ragged(*asked), torch.full((4,), 5)),
        strict=True,
    ):
        for one in some.hypotheses:
            assert one.logps == pytest.approx(forced(model, source, tuple(one.ids)), abs=1e-5)
            assert len(one.ids) <= 5


def test_whole_answers_come_as_often_as_the_model_says():
    model, source, count = Chance(4, seed=2), (3, 3, END), 2000
    (some,) = Sampling(count)(model, ragged(source), torch.tensor([12]))
    seen = Counter(tuple(one.ids) for one in some.hypotheses)
    likely = sorted(((logp, ids) for logp, ids in sentences(model.next(source), 4)), reverse=True)[
        :8
    ]
    shares = torch.tensor([logp for logp, _ in likely]).exp().tolist()
    observed = [seen[ids] for _, ids in likely]
    assert min(shares) * count > 5
    rest = (count - sum(observed), count * (1 - sum(shares)))
    assert (
        chisquare([*observed, rest[0]], [*(count * share for share in shares), rest[1]]).pvalue
        > 0.01
    )


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_tokens_over_many_seeds_come_as_often_as_softmax_says(temperature):
    model, source, count = Chance(6, seed=7), (3, 4, END), 600
    first = Counter()
    for seed in range(count):
        (some,) = Sampling(temperature=temperature, seed=seed)(
            model, ragged(source), torch.tensor([1])
        )
        (one,) = some.hypotheses
        first[one.ids[0] if one.ids else END] += 1
    shares = (model.logits(source, ()) / temperature).softmax(-1)
    common = (shares * count > 5).nonzero()[:, 0].tolist()
    assert len(common) > 1
    observed = [first[token] for token in common]
    total = sum(shares[token].item() for token in common)
    expected = [sum(observed) * shares[token].item() / total for token in common]
    assert chisquare(observed, expected).pvalue > 0.01
    assert sum(observed) > count * (total - 0.03)


WARPERS = {
    **{f"top_k {k}": ({"top_k": k}, TopKLogitsWarper(k)) for k in (1, 2, 5, 50)},
    **{f"top_p {p}": ({"top_p": p}, TopPLogitsWarper(p)) for p in (0.05, 0.5, 0.9, 0.99)},
    **{f"min_p {p}": ({"min_p": p}, MinPLogitsWarper(p)) for p in (0.02, 0.2, 0.9)},
}


@pytest.mark.parametrize(("options", "warper"), WARPERS.values(), ids=WARPERS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_tokens_that_stay_are_those_of_hf_and_so_are_their_shares(options, warper, temperature):
    count = 20_000
    for step in range(3):
        scores = (2 * torch.randn(1, 12)).log_softmax(-1)
        kept = warper(None, TemperatureLogitsWarper(temperature)(None, scores.clone()))[0].softmax(
            -1
        )
        seen = drawn(Sampling(temperature=temperature, **options), scores, count, step).bincount(
            minlength=12
        )
        assert (seen[kept == 0] == 0).all()
        assert (seen[kept * count > 20] > 0).all()  # e⁻²⁰ that one of them never comes
        spread = (kept * (1 - kept) / count).sqrt()
        assert ((seen / count - kept).abs() <= 5 * spread + 1 / count).all()


def test_without_restriction_every_token_comes_in_its_turn():
    scores = torch.randn(1, 300).log_softmax(-1)
    seen = drawn(Sampling(), scores, 60_000).bincount(minlength=300).double()
    expected = scores[0].double().softmax(-1) * 60_000
    assert chisquare(seen, expected).pvalue > 1e-3


def test_noise_is_gumbels_and_strange_to_its_neighbours():
    noise = gumbel(torch.arange(400), 3, torch.arange(500).expand(400, -1)).double()
    assert kstest(noise.flatten().numpy(), "gumbel_r").pvalue > 1e-3
    other = gumbel(torch.arange(400), 4, torch.arange(500).expand(400, -1)).double()
    for one, two in ((noise, other), (noise[1:], noise[:-1]), (noise[:, 1:], noise[:, :-1])):
        assert (
            abs(torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1]) < 0.01
        )  # four deviations


def test_a_race_that_is_nearly_a_draw_is_a_close_call():
    seeds, tokens = torch.arange(50), torch.arange(7).expand(50, -1)
    level = (-gumbel(seeds, 2, tokens)).log_softmax(-1)  # all arrive together
    _, margins = Sampling().draw(level, seeds, 2)
    assert (margins < 1e-5).all()
    ahead = level.clone()
    ahead[:, 4] += 0.01
    winners, margins = Sampling().draw(ahead, seeds, 2)
    assert winners.tolist() == [4] * 50
    torch.testing.assert_close(margins, torch.full((50,), 0.01), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "shares", "beside"),
    [
        ({"top_k": 2}, [0.5, 0.25, 0.25], {1, 2}),
        ({"top_p": 0.8}, [0.5, 0.3, 0.2], {2}),
        ({"min_p": 0.4}, [0.5, 0.3, 0.2], {2}),
    ],
)
def test_who_stays_by_rounding_alone_and_could_win_is_a_close_call(options, shares, beside):
    """Beside the edge of what stays: an equal, exactly so much before it, exactly so likely."""
    scores, seeds = torch.tensor(shares).log().expand(500, -1), torch.arange(500)
    _, margins = Sampling(**options).draw(scores, seeds, 0)
    race = scores + gumbel(seeds, 0, torch.arange(3).expand(500, -1))
    first = race.argmax(1)
    close = torch.tensor([int(token) in beside for token in first])
    assert 80 < close.sum() < 400
    assert (margins[close] == 0).all()
    assert (margins[~close] > 0).all()


def test_a_single_token_that_stays_clearly_is_no_close_call():
    scores = torch.tensor([0.2, 0.7, 0.1]).log().expand(50, -1)
    for options in ({"top_k": 1}, {"top_p": 0.3}, {"min_p": 0.9}):
        winners, margins = Sampling(**options).draw(scores, torch.arange(50), 0)
        assert winners.tolist() == [1] * 50
        assert (margins == float("inf")).all()


@pytest.mark.parametrize("options", [{}, {"top_p": 0.95}, {"top_k": 50}, {"min_p": 0.02}], ids=str)
def test_many_tokens_make_few_close_calls(options):
    """Else a large vocabulary would be sampled one by one."""
    scores = (3 * torch.randn(400, 8_000)).log_softmax(-1)
    _, margins = Sampling(**options).draw(scores, torch.arange(400), 1)
    assert (margins < CLOSE).float().mean() <= 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be at least 1; got 0"),
        (
            {"temperature": 0.0},
            "temperature must be above 0; use greedy search for the most likely output; got 0.0",
        ),
        ({"temperature": float("nan")}, "temperature must be above 0; .*; got nan"),
        ({"top_k": 0}, "top_k must be at least 1; got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1; got 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1; got 1.5"),
        ({"min_p": -0.1}, "min_p must be from 0 to 1; got -0.1"),
    ],
)
def test_a_value_without_sense_is_refused_in_one_line(options, message):
    with pytest.raises(RegardError, match=f"^{message}$"):
        Sampling(**options)
