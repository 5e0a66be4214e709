"""Patterns of heads and the markers of a film, by hand."""

import math

import pytest
import torch

from regard.trace.film_probes import Probe, ProbeFilm, markers
from regard.trace.head_patterns import becomes, pattern_cells, pattern_scores, strongest


def test_cells_of_every_pattern():
    def cells(name, queries=3, keys=3):
        return pattern_cells(name, queries, keys).int().tolist()

    assert cells("previous token") == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert cells("same token") == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert cells("next token") == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert cells("first token") == [[1, 0, 0]] * 3
    assert cells("last token") == [[0, 0, 1]] * 3
    # five keys for three queries: the line passes through keys 0, 2 and 4
    assert cells("diagonal", 3, 5) == [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]]
    assert cells("reverse diagonal", 3, 5) == [[0, 0, 0, 1, 1], [0, 1, 1, 1, 0], [1, 1, 0, 0, 0]]


def test_uniform_attention_has_score_zero():
    scores = pattern_scores(torch.full((1, 6, 9), 1 / 9), "cross")
    assert all(float(one) == pytest.approx(0, abs=1e-6) for one in scores.values())
    causal = torch.ones(5, 5).tril() / torch.arange(1, 6)[:, None]
    scores = pattern_scores(causal[None], "decoder")
    assert all(float(one) == pytest.approx(0, abs=1e-6) for one in scores.values())


def test_a_pure_head_has_score_one():
    previous = torch.diag(torch.ones(4), -1)
    previous[0, 0] = 1
    assert float(pattern_scores(previous[None], "decoder")["previous token"]) == pytest.approx(1)
    assert float(pattern_scores(torch.eye(8)[None], "cross")["diagonal"]) == pytest.approx(1)
    flipped = torch.eye(8).flip(0)
    assert float(pattern_scores(flipped[None], "cross")["reverse diagonal"]) == pytest.approx(1)


def test_a_score_between_by_hand():
    # Two rows of four keys: weights 0.7 and 0.4 on the first; uniform would be 0.25.
    weights = torch.tensor([[[0.7, 0.1, 0.1, 0.1], [0.4, 0.2, 0.2, 0.2]]])
    expected = ((0.7 - 0.25) / 0.75 + (0.4 - 0.25) / 0.75) / 2
    assert float(pattern_scores(weights, "cross")["first token"]) == pytest.approx(expected)


def test_a_head_is_named_after_its_strongest_pattern():
    # Two causal heads of three queries: one copies the previous token, one the first.
    previous = [[1.0, 0, 0], [0.9, 0.1, 0], [0, 0.8, 0.2]]
    first = [[1.0, 0, 0], [0.6, 0.4, 0], [0.7, 0.2, 0.1]]
    found = strongest(pattern_scores(torch.tensor([previous, first]), "decoder"))
    # rows 1 and 2 count; uniform attention gives the key 1/2 and 1/3
    expected = [(0.9 - 1 / 2) / (1 / 2) + (0.8 - 1 / 3) / (2 / 3)]
    expected += [(0.6 - 1 / 2) / (1 / 2) + (0.7 - 1 / 3) / (2 / 3)]
    assert [name for name, _ in found] == ["previous token", "first token"]
    assert [score for _, score in found] == pytest.approx([one / 2 for one in expected])


@pytest.mark.parametrize(
    ("scores", "first"),
    [
        ([0.0, 0.2, 0.5, 0.9], 2),
        ([0.0, 0.8, 0.4, 0.9], 3),  # it must stay
        ([0.6, 0.7, 0.9, 0.9], None),  # it was there before training
        ([0.0, 0.6, 0.7, 0.4], None),  # it was lost again
        ([0.0, 0.0, 0.0, 0.0], None),
    ],
)
def test_when_a_head_becomes_something(scores, first):
    assert becomes(scores) == first


def test_markers_of_a_film_by_hand():
    uniform, diagonal = torch.full((6, 6), 1 / 6), torch.eye(6)
    heads = [[uniform, uniform], [uniform, diagonal], [diagonal, diagonal], [diagonal, uniform]]
    frames = torch.stack([torch.stack(one) for one in heads])
    right = torch.tensor([[0.0] * 6, [1.0] * 6, [0.0] + [1.0] * 5, [1.0] * 6])
    arrays = {
        "dec.1.cross.weights": frames,
        "out.top.logprobs": torch.zeros(4, 6, 2),
        "out.chosen": torch.where(right > 0, 0.0, -math.inf),
    }
    film = ProbeFilm(
        [0, 300, 900, None],
        [3.0, 2.0, 1.0, None],
        [Probe("a", "b")],
        [arrays],
        {"dec.1.cross": "cross"},
    )
    assert markers(film) == [
        {
            "step": 900,
            "kind": "head",
            "attention": "dec.1.cross",
            "head": 0,
            "pattern": "diagonal",
        },
        {"step": None, "kind": "output", "probe": 0},
    ]
