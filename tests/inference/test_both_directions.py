"""Ensembles of both directions: all members score the outputs that each direction proposes."""

import itertools
from dataclasses import replace

import pytest
import torch

from regard.errors import RegardError
from regard.inference import inference_model
from regard.inference.both_directions import score_pairs, search_both
from regard.models import Ensemble
from regard.ragged import Ragged
from regard.search import Beam, Greedy, LengthPenalty, Sampling
from regard.search.constraints import min_length
from regard.text import BEGIN, END
from regard.text.template import DEFAULT_TEMPLATE
from tests.contracts.model_cases import TARGET, make
from tests.models.tracked_decoding import random_batch

FORWARD = ["transformer-position-rotary", "recurrent-bahdanau-additive"]
REVERSED = ["transformer-position-shaw"]
ALL = 300  # beams that lose no output of up to two tokens


@pytest.fixture(scope="module")
def model() -> Ensemble:
    return Ensemble([make(name) for name in FORWARD], [make(name) for name in REVERSED]).eval()


@torch.no_grad()
def by_hand(model: Ensemble, source: list[int], target: list[int]) -> list[float]:
    """The mean log-probability of each token over both directions, from the members' logits."""

    def logps(members, target: list[int]) -> torch.Tensor:
        pair = (
            Ragged.of([torch.tensor([*source, END])]),
            Ragged.of([torch.tensor([BEGIN, *target])]),
        )
        mean = sum(one(*pair).values.double().softmax(-1) for one in members) / len(members)
        return mean[range(len(target) + 1), [*target, END]].log()

    forward, back = logps(model.members, target), logps(model.reversed_members, target[::-1])
    back = torch.cat([back[:-1].flip(0), back[-1:]])
    return ((2 * forward + back) / 3).tolist()


def sources(lengths: list[int]) -> list[list[int]]:
    torch.manual_seed(5)
    return [row.tolist() for row in random_batch(lengths)]


def search(model: Ensemble, some: list[list[int]], algorithm, max_length: int = 2):
    options = {"template": DEFAULT_TEMPLATE, "max_length": max_length}
    return search_both(algorithm, model, some, searched=inference_model(model), **options)


def test_scores_are_the_mean_of_both_directions(model):
    some, targets = sources([4, 2, 6]), [[5, 3, 7], [], [4, 4]]
    found = score_pairs(model, some, targets, DEFAULT_TEMPLATE)
    for source, target, row in zip(some, targets, found, strict=True):
        assert row == pytest.approx(by_hand(model, source, target), abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_best_of_all_outputs_wins(model, alpha):
    penalty = LengthPenalty(alpha)
    some = sources([3, 5])
    tokens = [token for token in range(TARGET) if token != END]
    outputs = [list(ids) for count in range(3) for ids in itertools.product(tokens, repeat=count)]
    for source, found in zip(some, search(model, some, Beam(ALL, 5, penalty)), strict=True):
        scores = {tuple(ids): sum(by_hand(model, source, ids)) / (len(ids) + 1) ** alpha
                  for ids in outputs}  # fmt: skip
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:5]
        assert [tuple(one.ids) for one in found] == best
        assert [one.score for one in found] == pytest.approx([scores[x] for x in best], abs=1e-4)
        assert found[0].logps == pytest.approx(by_hand(model, source, list(best[0])), abs=1e-5)


def test_the_reversed_members_propose_outputs_too(model):
    """An output that forward search does not find, but that all members together prefer."""
    some = sources([1, 2, 3, 4, 5, 6, 7, 8] * 4)
    forward = Ensemble(list(model.members))
    limits = {"template": DEFAULT_TEMPLATE, "max_length": 6}
    from regard.inference import search_all

    alone = search_all(Greedy(), inference_model(forward), some, **limits)
    found = search(model, some, Greedy(), 6)
    changed = 0
    for source, one, (best, *_) in zip(some, alone, found, strict=True):
        before = one.hypotheses[0].ids
        assert sum(best.logps) >= sum(by_hand(model, source, before)) - 1e-4
        changed += best.ids != before
    assert changed >= 3


@pytest.mark.parametrize("algorithm", [Greedy(), Beam(3, 2)], ids=["greedy", "beam"])
def test_no_output_depends_on_the_batch(model, algorithm):
    some = sources([3, 1, 8, 5, 5, 2])
    together = search(model, some, algorithm, 6)
    for source, found in zip(some, together, strict=True):
        (alone,) = search(model, [source], algorithm, 6)
        assert [one.ids for one in alone] == [one.ids for one in found]
        assert alone[0].logps == pytest.approx(found[0].logps, abs=1e-5)


def test_forward_members_decide_constraints_and_samples(model):
    from regard.inference import search_all

    some, forward = sources([4, 6]), inference_model(Ensemble(list(model.members)))
    for algorithm in (Beam(4, 2, constraints=(min_length(3, END),)), Sampling(count=3)):
        found = search(model, some, algorithm, 6)
        limits = {"template": DEFAULT_TEMPLATE, "max_length": 6}
        expected = search_all(algorithm, forward, some, **limits)
        for source, one, other in zip(some, found, expected, strict=True):
            assert [x.ids for x in one] == [x.ids for x in other.hypotheses]
            for hypothesis in one:
                right = by_hand(model, source, hypothesis.ids)
                assert hypothesis.logps == pytest.approx(right, abs=1e-5)


def test_a_reversed_template_exchanges_the_sides(model):
    mirrored = Ensemble(list(model.reversed_members), list(model.members)).eval()
    some, target = sources([4]), [5, 3, 7]
    template = replace(DEFAULT_TEMPLATE, reversed=True)
    found = score_pairs(mirrored, some, [target], template)
    assert found[0] == pytest.approx(by_hand(model, some[0], target), abs=1e-5)


def test_an_ensemble_needs_a_forward_member(model):
    with pytest.raises(RegardError, match="at least one model"):
        Ensemble([], [make(REVERSED[0])])
