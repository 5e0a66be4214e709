"""Sampling: the same seed the same text, the model's own frequencies, and HF's warpers for which tokens stay."""

from collections import Counter

import pytest
import torch
from scipy.stats import chisquare
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from regard.errors import RegardError
from regard.search import Sampling
from tests.search.trees import END, Chance, forced, made, ragged, sentences, sources

VOCABULARY = 9


def said(found) -> list[list[list[int]]]:
    return [[one.ids for one in some.hypotheses] for some in found]


def drawn(search: Sampling, scores: torch.Tensor, count: int) -> torch.Tensor:
    """Tokens drawn from one row of scores, with numbers spread evenly over [0, 1)."""
    draws = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return search.drawn(scores.expand(count, -1), draws)[0]


@pytest.mark.parametrize("family", ["swift", "recurrent"])
def test_the_same_seed_gives_the_same_text_in_any_company(family):
    model, asked = made(family, VOCABULARY, VOCABULARY, sharp=1.0), sources(6)
    limits = torch.tensor([len(source) + 3 for source in asked])
    search = Sampling(3, seed=4)
    together = said(search(model, ragged(*asked), limits))
    assert said(search(model, ragged(*asked), limits)) == together
    assert said(search(model, ragged(*asked[::-1]), limits.flip(0)))[::-1] == together
    assert [said(search(model, ragged(source), limits[i : i + 1]))[0] for i, source in enumerate(asked)] == together
    assert said(Sampling(3, seed=5)(model, ragged(*asked), limits)) != together
    assert len({tuple(ids) for some in together for ids in some}) > 12  # answers to one source differ too


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
        asked, Sampling(2, temperature=3.0, top_k=4)(model, ragged(*asked), torch.full((4,), 5)), strict=True
    ):
        for one in some.hypotheses:
            assert one.logps == pytest.approx(forced(model, source, tuple(one.ids)), abs=1e-5)
            assert len(one.ids) <= 5


def test_whole_answers_come_as_often_as_the_model_says():
    model, source, count = Chance(4, seed=2), (3, 3, END), 2000
    (some,) = Sampling(count)(model, ragged(source), torch.tensor([12]))
    seen = Counter(tuple(one.ids) for one in some.hypotheses)
    likely = sorted(((logp, ids) for logp, ids in sentences(model.next(source), 4)), reverse=True)[:8]
    shares = torch.tensor([logp for logp, _ in likely]).exp().tolist()
    observed = [seen[ids] for _, ids in likely]
    assert min(shares) * count > 5
    rest = (count - sum(observed), count * (1 - sum(shares)))
    assert chisquare([*observed, rest[0]], [*(count * share for share in shares), rest[1]]).pvalue > 0.01


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_tokens_over_many_seeds_come_as_often_as_softmax_says(temperature):
    model, source, count = Chance(6, seed=7), (3, 4, END), 120
    first = Counter()
    for seed in range(count):
        (some,) = Sampling(temperature=temperature, seed=seed)(model, ragged(source), torch.tensor([1]))
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
    for _ in range(3):
        scores = (2 * torch.randn(1, 12)).log_softmax(-1)
        kept = warper(None, TemperatureLogitsWarper(temperature)(None, scores.clone()))[0].softmax(-1)
        seen = drawn(Sampling(temperature=temperature, **options), scores, count).bincount(minlength=12) / count
        torch.testing.assert_close(seen, kept, rtol=0, atol=2 / count)
        assert (seen[kept > 2 / count] > 0).all()
        assert (seen[kept == 0] == 0).all()


def test_without_restriction_every_token_stays():
    scores = torch.randn(1, 5000).log_softmax(-1)
    tokens, _ = Sampling().drawn(scores.expand(2, -1), torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [scores.argmax().item(), scores.argmin().item()]


def test_a_number_at_the_edge_of_a_share_is_a_close_call():
    scores = torch.tensor([0.5, 0.3, 0.2]).log().expand(4, -1)
    draws = torch.tensor([0.25, 0.49999, 0.50001, 0.65], dtype=torch.float64)
    tokens, margins = Sampling().drawn(scores, draws)
    assert tokens.tolist() == [0, 0, 1, 1]
    assert (margins < 1e-4).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be at least 1; got 0"),
        ({"temperature": 0.0}, "temperature must be above 0; for the likeliest answer use greedy search; got 0.0"),
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
