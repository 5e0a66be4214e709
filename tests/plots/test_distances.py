"""Mean score against distance: each encoding's formula by hand."""

import math

import numpy as np
import pytest
import torch

from regard import plots
from regard.errors import RegardError, ShapeError
from regard.positions import T5, Alibi, Distance, Learned, NoPosition, Rotary, Shaw, Sinusoidal
from tests.plots.reading import assert_nothing_cut

DIM, HEADS, REACH = 16, 4, 10
APART = np.arange(-REACH, REACH + 1)
SAME = math.sqrt(DIM)  # the score of a content of length √dim with itself
RATES = 10000 ** (-np.arange(0, DIM, 2) / DIM)


def mean(position, **options):
    return plots.mean_scores(position, dim=DIM, heads=HEADS, reach=REACH, **options).numpy()


def test_without_positions_the_score_is_the_same_everywhere():
    assert np.allclose(mean(NoPosition()), SAME)


def test_rotary_sums_cosines_of_the_distance():
    assert np.allclose(
        mean(Rotary(DIM)), 2 * np.cos(APART[:, None] * RATES).sum(1) / math.sqrt(DIM), atol=1e-5
    )


def test_sinusoidal_adds_cosines_of_the_distance():
    assert np.allclose(
        mean(Sinusoidal(DIM)),
        SAME + np.cos(APART[:, None] * RATES).sum(1) / math.sqrt(DIM),
        atol=1e-5,
    )


def test_alibi_falls_by_the_mean_slope():
    slopes = [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    assert np.allclose(mean(Alibi(HEADS)), SAME - np.mean(slopes) * abs(APART), atol=1e-5)


def test_distance_reads_its_table():
    position = Distance(HEADS, DIM, max_distance=3)
    position.table.data = torch.arange(7.0).expand(HEADS, -1).clone()
    assert np.allclose(
        mean(position), SAME + (np.clip(APART, -3, 3) + 3) / math.sqrt(DIM), atol=1e-5
    )


def test_t5_reads_its_buckets():
    position = T5(HEADS)
    position.table.data = torch.arange(32.0).expand(HEADS, -1).clone()
    curve = mean(position) - SAME
    assert np.allclose(curve[REACH - 3 : REACH + 4], [3, 2, 1, 0, 17, 18, 19], atol=1e-5)


def test_shaw_needs_contents():
    position, content = Shaw(DIM, max_distance=2), torch.randn(1, DIM)
    by_hand = content[0] @ content[0] + content[0] @ position.table.T
    expected = by_hand[np.clip(APART, -2, 2) + 2].detach().numpy() / math.sqrt(DIM)
    assert np.allclose(mean(position, contents=content), expected, atol=1e-5)
    assert np.allclose(mean(position), SAME, atol=1e-5)


def test_learned_is_the_mean_over_positions():
    position = Learned(DIM, max_length=2 * REACH + 1)
    table = position.table.detach().numpy()
    expected = SAME + np.array([np.diagonal(table @ table.T, r).mean() for r in APART]) / math.sqrt(
        DIM
    )
    assert np.allclose(mean(position), expected, atol=1e-5)


def test_each_curve_is_drawn_with_its_name():
    curves = {"rotary": mean(Rotary(DIM)), "alibi": mean(Alibi(HEADS))[5:-5]}
    figure = plots.score_by_distance(curves, title="two")
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert (
        [text.get_text() for text in axes.get_legend().get_texts()]
        == ["rotary", "alibi"]
        == list(lines)
    )
    assert np.array_equal(lines["rotary"].get_xdata(), APART)
    assert np.allclose(lines["rotary"].get_ydata(), curves["rotary"])
    assert np.array_equal(lines["alibi"].get_xdata(), APART[5:-5])
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == (
        "distance (key − query)",
        "mean score",
        "two",
    )
    assert_nothing_cut(figure)


def test_many_curves_have_distinct_styles():
    figure = plots.score_by_distance({str(i): torch.zeros(3) for i in range(28)})
    record_attention = {
        (line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines[1:]
    }
    assert len(record_attention) == 28


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.score_by_distance({}), "curves are empty"),
        (
            lambda: plots.score_by_distance({"a": torch.zeros(4)}),
            "'a' must run from −reach to reach.*got 4",
        ),
        (
            lambda: mean(NoPosition(), contents=torch.zeros(1, 3)),
            r"contents must be .*; got shape \(1, 3\)",
        ),
        (
            lambda: plots.mean_scores(NoPosition(), dim=2, heads=1, reach=0),
            "reach must be at least 1; got 0",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(RegardError, match=message):
        call()


def test_mean_scores_name_sizes_that_do_not_fit():
    with pytest.raises(ShapeError, match="Sinusoidal adds vectors of width 512, but dim is 64"):
        plots.mean_scores(Sinusoidal(width=512), dim=64, heads=8)
    with pytest.raises(
        ShapeError, match=r"contents must be \(content, 64\), one at least; got shape \(0, 64\)"
    ):
        plots.mean_scores(Alibi(heads=8), dim=64, heads=8, contents=torch.randn(0, 64))
