"""Arrows, read back from what was drawn."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from regard import plots
from regard.errors import RegardError
from regard.plots.palette import head_colour
from tests.plots.reading import assert_apart, assert_nothing_cut

BEFORE = torch.tensor(
    [[1, 0, 0], [0.95, 0.1, 0], [0, 1, 0], [0, 0.95, 0.1], [-1, 0, 0], [0.5, 0.5, 0.5]]
)
AFTER = BEFORE.flip(1) * 2
LABELS = ["v1", "v2", "v3", "v4", "v5", "v6"]


@pytest.fixture(scope="module")
def figure():
    return plots.arrows(BEFORE, LABELS, after=AFTER)


def shafts(axes):
    """Both ends of the shaft of each arrow, and its colour; matplotlib runs it from the tip to the
    tail.
    """
    arrows = [c for c in axes.collections if hasattr(c, "_segments3d")]
    return [(np.array(c._segments3d[0]), to_hex(c.get_edgecolor()[0])) for c in arrows]


@pytest.mark.parametrize(("place", "vectors"), [(0, BEFORE), (1, AFTER)])
def test_arrows_run_from_the_origin_to_the_vectors(figure, place, vectors):
    drawn = shafts(figure.axes[place])
    assert len(drawn) == 6
    for number, (shaft, colour) in enumerate(drawn):
        assert np.allclose(shaft, [vectors[number].tolist(), [0, 0, 0]])
        assert colour == head_colour(number)


def test_both_panels_have_the_same_limits_and_a_title(figure):
    before, after = figure.axes
    for limits in ("get_xlim", "get_ylim", "get_zlim"):
        assert getattr(before, limits)() == getattr(after, limits)() == pytest.approx((-2.1, 2.1))
    assert (before.get_title(), after.get_title()) == ("before attention", "after attention")
    assert (before.get_xlabel(), before.get_ylabel(), before.get_zlabel()) == ("x₁", "x₂", "x₃")


def test_labels_are_above_their_arrow_and_cover_no_other(figure):
    for axes, vectors in zip(figure.axes, (BEFORE, AFTER), strict=True):
        assert [text.get_text() for text in axes.texts] == LABELS
        for text, vector in zip(axes.texts, vectors, strict=True):
            x, y, z = text.get_position_3d()
            assert (x, y) == pytest.approx(tuple(vector[:2].tolist()))
            assert z > vector[2]
        assert_apart(figure, axes.texts)


def test_vectors_alone_need_no_title():
    figure = plots.arrows(BEFORE, LABELS)
    assert len(figure.axes) == 1
    assert figure.axes[0].get_title() == ""
    assert_nothing_cut(figure)


def test_a_zero_vector_is_a_point():
    axes = plots.arrows(torch.zeros(1, 3), ["nothing"]).axes[0]
    points = [c for c in axes.collections if hasattr(c, "_offsets3d")]
    assert [float(x[0]) for x in points[0]._offsets3d] == [0, 0, 0]


def test_label_placement_ends_when_seen_from_above():
    assert plots.arrows(torch.eye(3), list("abc"), view=(90, -90)).axes


def test_labels_of_equal_vectors_do_not_overlap():
    figure = plots.arrows(torch.ones(4, 3), ["same"] * 4)
    assert [text.get_text() for text in figure.axes[0].texts] == [
        "same₀",
        "same₁",
        "same₂",
        "same₃",
    ]
    assert_apart(figure, figure.axes[0].texts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: plots.arrows(torch.eye(2), ["a", "b"]),
            "vectors must have 3 dimensions; got 2",
        ),
        (
            lambda: plots.arrows(torch.eye(3), ["a"]),
            "vectors has 3 vectors, but there are 1 labels",
        ),
        (
            lambda: plots.arrows(torch.eye(3), list("abc"), after=torch.eye(3)[:2]),
            "after has 2 vectors, but there are 3 labels",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(RegardError, match=message):
        call()
