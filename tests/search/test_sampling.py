"""Sampling: reproducible by seed, with the model's frequencies and Hugging Face's warpers."""

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
from regard.search.hypothesis import NEAR_TIE
from regard.search.sampling import gumbel
from tests.contracts.test_search import outputs_of
from tests.search.known_models import (
    END,
    RandomModel,
    all_outputs,
    make_model,
    ragged,
    random_sources,
    teacher_forced,
)

VOCABULARY = 9


def draw_tokens(search: Sampling, scores: torch.Tensor, count: int, step: int = 0) -> torch.Tensor:
    """Tokens drawn from one row of scores by many seeds."""
    return search.draw(scores.expand(count, -1), torch.arange(count), step)[0]


@pytest.mark.parametrize("name", ["fast", "recurrent"])
def test_outputs_are_determined_by_the_seed(name: str):
    model, sources = make_model(name, VOCABULARY, VOCABULARY, sharpness=1.0), random_sources(6)
    limits = torch.tensor([len(source) + 3 for source in sources])
    search = Sampling(3, seed=4)
    outputs = outputs_of(search(model, ragged(*sources), limits))
    assert outputs_of(search(model, ragged(*sources), limits)) == outputs
    assert outputs_of(Sampling(3, seed=5)(model, ragged(*sources), limits)) != outputs
    different = {tuple(ids) for samples in outputs for ids in samples}
    assert len(different) > 12  # samples of one source differ too


def test_the_first_samples_do_not_depend_on_count_or_limit():
    model, sources = RandomModel(6, end=-1.0), random_sources(8)
    few = outputs_of(Sampling(2)(model, ragged(*sources), torch.full((8,), 30)))
    many = outputs_of(Sampling(20)(model, ragged(*sources), torch.full((8,), 30)))
    assert [samples[:2] for samples in many] == few
    short = outputs_of(Sampling(2)(model, ragged(*sources), torch.full((8,), 4)))
    assert [[ids[:4] for ids in samples] for samples in few] == short


def test_logps_do_not_depend_on_the_temperature():
    model, sources = make_model("recurrent", VOCABULARY, VOCABULARY), random_sources(4)
    search = Sampling(2, temperature=3.0, top_k=4)
    results = search(model, ragged(*sources), torch.full((4,), 5))
    for source, result in zip(sources, results, strict=True):
        for each in result.hypotheses:
            expected = teacher_forced(model, source, tuple(each.ids))
            assert each.logps == pytest.approx(expected, abs=1e-5)
            assert len(each.ids) <= 5


def test_outputs_have_the_frequencies_of_the_model():
    model, source, count = RandomModel(4, seed=2), (3, 3, END), 2000
    (some,) = Sampling(count)(model, ragged(source), torch.tensor([12]))
    seen = Counter(tuple(one.ids) for one in some.hypotheses)
    likely = sorted(
        ((logp, ids) for logp, ids in all_outputs(model.next_logps(source), 4)), reverse=True
    )[:8]
    shares = torch.tensor([logp for logp, _ in likely]).exp().tolist()
    observed = [seen[ids] for _, ids in likely]
    assert min(shares) * count > 5
    rest = (count - sum(observed), count * (1 - sum(shares)))
    assert (
        chisquare([*observed, rest[0]], [*(count * share for share in shares), rest[1]]).pvalue
        > 0.01
    )


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_tokens_have_softmax_frequencies_over_seeds(temperature):
    model, source, count = RandomModel(6, seed=7), (3, 4, END), 600
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
def test_truncation_equals_hugging_face_warpers(options, warper, temperature):
    count = 20_000
    for step in range(3):
        scores = (2 * torch.randn(1, 12)).log_softmax(-1)
        kept = warper(None, TemperatureLogitsWarper(temperature)(None, scores.clone()))[0].softmax(
            -1
        )
        seen = draw_tokens(
            Sampling(temperature=temperature, **options), scores, count, step
        ).bincount(minlength=12)
        assert (seen[kept == 0] == 0).all()
        assert (seen[kept * count > 20] > 0).all()  # missing one has probability e⁻²⁰
        spread = (kept * (1 - kept) / count).sqrt()
        assert ((seen / count - kept).abs() <= 5 * spread + 1 / count).all()


def test_without_truncation_every_token_is_draw_tokens():
    scores = torch.randn(1, 300).log_softmax(-1)
    seen = draw_tokens(Sampling(), scores, 60_000).bincount(minlength=300).double()
    expected = scores[0].double().softmax(-1) * 60_000
    assert chisquare(seen, expected).pvalue > 1e-3


def test_noise_is_gumbel_and_uncorrelated():
    noise = gumbel(torch.arange(400), 3, torch.arange(500).expand(400, -1)).double()
    assert kstest(noise.flatten().numpy(), "gumbel_r").pvalue > 1e-3
    other = gumbel(torch.arange(400), 4, torch.arange(500).expand(400, -1)).double()
    for one, two in ((noise, other), (noise[1:], noise[:-1]), (noise[:, 1:], noise[:, :-1])):
        assert (
            abs(torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1]) < 0.01
        )  # four deviations


def test_the_margin_is_the_lead_of_the_drawn_token():
    seeds, tokens = torch.arange(50), torch.arange(7).expand(50, -1)
    level = (-gumbel(seeds, 2, tokens)).log_softmax(-1)  # a tie of all tokens
    _, margins = Sampling().draw(level, seeds, 2)
    assert (margins < 1e-5).all()
    ahead = level.clone()
    ahead[:, 4] += 0.01
    winners, margins = Sampling().draw(ahead, seeds, 2)
    assert winners.tolist() == [4] * 50
    torch.testing.assert_close(margins, torch.full((50,), 0.01), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "shares", "at_the_edge"),
    [
        ({"top_k": 2}, [0.5, 0.25, 0.25], {1, 2}),
        ({"top_p": 0.8}, [0.5, 0.3, 0.2], {2}),
        ({"min_p": 0.4}, [0.5, 0.3, 0.2], {2}),
    ],
)
def test_a_token_at_the_truncation_edge_is_a_near_tie(options, shares, at_the_edge):
    """At the edge: a tie in rank, a cumulative probability of top_p, a share of min_p."""
    scores, seeds = torch.tensor(shares).log().expand(500, -1), torch.arange(500)
    _, margins = Sampling(**options).draw(scores, seeds, 0)
    race = scores + gumbel(seeds, 0, torch.arange(3).expand(500, -1))
    first = race.argmax(1)
    close = torch.tensor([int(token) in at_the_edge for token in first])
    assert 80 < close.sum() < 400
    assert (margins[close] == 0).all()
    assert (margins[~close] > 0).all()


def test_a_single_remaining_token_is_no_near_tie():
    scores = torch.tensor([0.2, 0.7, 0.1]).log().expand(50, -1)
    for options in ({"top_k": 1}, {"top_p": 0.3}, {"min_p": 0.9}):
        winners, margins = Sampling(**options).draw(scores, torch.arange(50), 0)
        assert winners.tolist() == [1] * 50
        assert (margins == float("inf")).all()


@pytest.mark.parametrize("options", [{}, {"top_p": 0.95}, {"top_k": 50}, {"min_p": 0.02}], ids=str)
def test_large_vocabularies_have_few_near_ties(options):
    """Otherwise sources would be sampled one by one."""
    scores = (3 * torch.randn(400, 8_000)).log_softmax(-1)
    _, margins = Sampling(**options).draw(scores, torch.arange(400), 1)
    assert (margins < NEAR_TIE).float().mean() <= 0.01


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
def test_an_option_out_of_range_is_refused(options, message):
    with pytest.raises(RegardError, match=f"^{message}$"):
        Sampling(**options)


@pytest.mark.parametrize("temperature", [float("inf"), 1e300, 1e-300])
def test_a_temperature_out_of_range_is_refused(temperature: float):
    with pytest.raises(RegardError) as error:
        Sampling(temperature=temperature)
    assert str(error.value) == f"temperature must be from 0.000001 to 1000000; got {temperature}"


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
def test_temperatures_at_the_edges_of_the_range_work(temperature: float):
    sources = ragged(*random_sources(4))
    results = Sampling(2, temperature)(RandomModel(6, end=-1.0), sources, torch.full((4,), 8))
    assert [len(result.hypotheses) for result in results] == [2] * 4


def test_a_seed_out_of_range_is_refused():
    with pytest.raises(RegardError, match=r"^seed must be a whole number below 2¹²⁷; got "):
        Sampling(seed=2**130)
