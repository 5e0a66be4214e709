"""Regression as attention, read back from what was drawn."""

import numpy as np
import pytest
import torch

from regard import plots
from regard.errors import RegardError
from regard.pooling import NadarayaWatson
from tests.plots.reading import assert_nothing_cut

KEYS = torch.tensor([0.0, 1.0, 3.0])
VALUES = torch.tensor([2.0, 4.0, 9.0])
QUERIES = torch.tensor([2.0, 0.0, 7.0])  # not in order
WEIGHTS = torch.tensor([[0.0, 0.5, 0.5], [0.75, 0.25, 0.0], [0.0, 0.0, 0.0]])


@pytest.fixture
def figure():
    return plots.regression(KEYS, VALUES, QUERIES, WEIGHTS, query=1, truth=QUERIES**2)


def line(axes, name):
    (found,) = (line for line in axes.lines if line.get_label() == name)
    return found


def panels(figure):
    return sorted(figure.axes, key=lambda axes: -axes.get_position().y0)


def test_the_curve_is_weights_times_values(figure):
    curve = line(panels(figure)[0], "attention pooling")
    assert curve.get_xdata().tolist() == [0, 2, 7]
    assert curve.get_ydata()[:2].tolist() == [2.5, 6.5]
    assert np.isnan(curve.get_ydata()[2])  # no key answers there


def test_points_are_keys_with_values(figure):
    points, areas = panels(figure)[0].collections
    assert points.get_offsets().tolist() == [[0, 2], [1, 4], [3, 9]]
    assert (areas.get_sizes() / areas.get_sizes().max()).tolist() == pytest.approx([1, 1 / 3, 0])


def test_weights_of_the_chosen_query_are_drawn_at_their_keys(figure):
    (bars,) = panels(figure)[1].collections
    ends = [path.vertices.tolist() for path in bars.get_paths()]
    assert ends == [[[0, 0], [0, 0.75]], [[1, 0], [1, 0.25]], [[3, 0], [3, 0]]]


def test_baseline_and_truth(figure):
    above = panels(figure)[0]
    assert line(above, "equal weights (the mean)").get_ydata() == [5, 5]
    assert line(above, "true curve").get_ydata().tolist() == [0, 4, 49]


def test_titles(figure):
    above, below = panels(figure)
    assert (above.get_ylabel(), below.get_xlabel(), below.get_ylabel()) == (
        "y (value)",
        "x (key)",
        "weight",
    )
    assert [text.get_text() for text in below.texts] == ["query x = 0"]
    assert_nothing_cut(figure)


def test_the_middle_query_is_the_default():
    figure = plots.regression(KEYS, VALUES, QUERIES, WEIGHTS)
    assert [text.get_text() for text in panels(figure)[1].texts] == ["query x = 0"]


def test_with_the_estimator():
    x, y, grid = np.arange(6.0)[:, None], np.sin(np.arange(6.0)), np.linspace(0, 5, 11)[:, None]
    model = NadarayaWatson(bandwidth=0.5).fit(x, y)
    figure = plots.regression(x[:, 0], y, grid[:, 0], model.weights(grid))
    assert np.allclose(
        line(panels(figure)[0], "attention pooling").get_ydata(), model.predict(grid)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": VALUES[:2]}, "got 3 keys and 2 values"),
        ({"weights": WEIGHTS.T[:2]}, r"must be 3 queries × 3 keys; got shape \(2, 3\)"),
        ({"weights": WEIGHTS * 2}, "between 0 and 1"),
        ({"query": 3}, "query must be from 0 to 2; got 3"),
        ({"truth": KEYS[:2]}, "got 2 for 3"),
        ({"keys": KEYS[:, None]}, r"keys must be \(key\); got shape \(3, 1\)"),
    ],
)
def test_errors(change, message):
    with pytest.raises(RegardError, match=message):
        plots.regression(
            **{"keys": KEYS, "values": VALUES, "queries": QUERIES, "weights": WEIGHTS, **change}
        )
