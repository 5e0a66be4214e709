"""Heat maps, read back from what was drawn."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from regard import plots
from regard.attention import Attention, causal, window
from regard.attention.scores import ScaledDot
from regard.errors import RegardError, ShapeError
from regard.plots.palette import SIGNED, WEIGHTS, colour
from regard.positions import Sinusoidal
from tests.plots.reading import (
    assert_apart,
    assert_nothing_cut,
    colours,
    columns,
    hatched,
    image,
    rows,
    words,
)

TOKENS = ["the", "man", "hit", "the", "car"]
SHOWN = ["the₀", "man", "hit", "the₃", "car"]


def steps(queries=5, keys=5, mask=causal):
    sizes = ((1, 1, n, 11) for n in (queries, keys, keys))
    return Attention(ScaledDot(1, 11)).intermediates(
        *(torch.randn(size) for size in sizes), mask=mask
    )


@pytest.fixture
def seen():
    return steps()


@pytest.fixture
def figure(seen):
    return plots.weights(seen.weights[0, 0], TOKENS, allowed=seen.allowed[0, 0], title="head 0")


def test_the_image_is_the_weights(figure, seen):
    drawn, weights, allowed = image(figure.axes[0]), seen.weights[0, 0], seen.allowed[0, 0]
    assert np.array_equal(drawn.mask, ~allowed.numpy())
    assert np.array_equal(drawn.data[allowed], weights[allowed].double().numpy())


def test_rows_are_queries_and_columns_are_keys(figure):
    axes = figure.axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("query (attends)", "key (is matched)")
    assert rows(axes) == columns(axes) == SHOWN
    assert axes.get_title() == "head 0"
    assert axes.get_ylim() == (4.5, -0.5)  # the first query is on top


def test_masked_cells_are_hatched_with_a_legend(figure, seen):
    axes, allowed = figure.axes[0], seen.allowed[0, 0].numpy()
    assert np.array_equal(hatched(axes), ~allowed)
    assert {cell for cell, text in words(axes).items() if text == "−∞"} == set(
        zip(*np.nonzero(~allowed), strict=True)
    )
    (bar,) = axes.child_axes
    assert [text.get_text() for text in bar.get_legend().get_texts()] == ["masked (−∞)"]


@pytest.mark.parametrize("mask", [window(2), causal & window(3)])
def test_hatching_follows_any_mask(mask):
    seen = steps(7, 7, mask)
    figure = plots.weights(seen.weights[0, 0], list("abcdefg"), allowed=seen.allowed[0, 0])
    assert np.array_equal(hatched(figure.axes[0]), ~seen.allowed[0, 0].numpy())


def test_nothing_is_hatched_without_a_mask(seen):
    axes = plots.weights(seen.weights[0, 0], TOKENS).axes[0]
    assert not axes.collections
    assert axes.child_axes[0].get_legend() is None


def test_numbers_are_written_into_small_maps_only():
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    assert words(plots.weights(weights, ["a", "b"]).axes[0]) == {
        (0, 0): "0.25",
        (0, 1): "0.75",
        (1, 0): "1.00",
        (1, 1): "0.00",
    }
    assert not words(plots.weights(torch.full((13, 13), 1 / 13), list("abcdefghijklm")).axes[0])


def test_a_weight_has_the_palettes_colour_on_the_page():
    weights = torch.linspace(0, 1, 13).repeat(13, 1)
    figure = plots.weights(weights, list("abcdefghijklm"))
    expected = [colour(WEIGHTS, weight) for weight in weights[4].tolist()]
    for aside in (-0.42, 0, 0.42):  # at the centre of a cell and near its edges: nothing is blended
        assert (
            colours(figure, figure.axes[0], *((key + aside, 4 + aside) for key in range(13)))
            == expected
        )


def test_the_scale_does_not_depend_on_the_weights():
    (drawn,) = plots.weights(torch.full((4, 4), 0.25), list("abcd")).axes[0].images
    assert drawn.get_clim() == (0, 1)


def test_weights_outside_the_unit_interval_have_a_signed_scale():
    weights = torch.tensor([[0.5, -0.25], [2.0, 0.0]])  # as of normaliser none
    axes = plots.weights(weights, ["a", "b"]).axes[0]
    assert axes.images[0].get_clim() == (-2, 2)
    assert words(axes)[0, 1] == "−0.25"
    expected = [colour(SIGNED, share) for share in (0.625, 0.4375)]
    assert colours(axes.figure, axes, (0, 0), (1, 0)) == expected


def test_decoder_rows_and_other_keys():
    weights = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    axes = plots.weights(
        weights, ["<s>", "der"], ["the", "dog", "."], predicted=["der", "Hund"]
    ).axes[0]
    assert rows(axes) == ["after <s> → der", "after der → Hund"]
    assert columns(axes) == ["the", "dog", "."]
    assert image(axes)[1, 2] == pytest.approx(0.8)


def test_a_token_with_dollars_is_not_a_formula():
    axes = plots.weights(torch.eye(2), ["$x$", "$"]).axes[0]
    assert rows(axes) == ["$x$", "$"]
    assert not any(
        label.get_parse_math() for label in [*axes.get_yticklabels(), *axes.get_xticklabels()]
    )


@pytest.mark.parametrize("count", [1, 5, 30, 64, 200])
def test_labels_do_not_overlap_and_nothing_is_cut(count):
    weights = torch.full((count, count), 1 / count)
    figure = plots.weights(
        weights, [f"word{i}" for i in range(count)], allowed=torch.ones(1, 1, dtype=torch.bool)
    )
    assert_nothing_cut(figure)
    if count > 1:
        assert_apart(figure, figure.axes[0].get_yticklabels())


def test_many_tokens_label_every_fifth_one():
    axes = plots.weights(torch.full((200, 200), 1 / 200), [f"t{i}" for i in range(200)]).axes[0]
    assert rows(axes) == [f"t{i}" for i in range(0, 200, 5)]
    assert list(axes.get_yticks()) == list(range(0, 200, 5))


def test_upright_labels_do_not_touch(figure):
    assert_apart(figure, figure.axes[0].get_xticklabels())


def test_own_axes_can_be_given(seen):
    figure = Figure(figsize=(8, 4))
    left, right = figure.subplots(1, 2)
    assert plots.weights(seen.weights[0, 0], TOKENS, axes=left) is figure
    assert plots.scores(seen.biased[0, 0], TOKENS, axes=right) is figure
    assert tuple(figure.get_size_inches()) == (8, 4)
    assert rows(left) == rows(right) == SHOWN


def test_axes_of_a_subfigure_can_be_given(seen):
    figure = Figure()
    part, _ = figure.subfigures(1, 2)
    assert plots.weights(seen.weights[0, 0], TOKENS, axes=part.add_subplot()) is figure


def test_scores_are_signed_and_zero_is_neutral():
    scores = torch.tensor([[-4.0, 0.0, 1.0], [0.0, 2.0, 9.0]])
    allowed = torch.tensor([[True, True, True], [True, True, False]])
    figure = plots.scores(scores, ["a", "b"], ["x", "y", "z"], allowed=allowed)
    axes = figure.axes[0]
    assert axes.images[0].get_clim() == (-4, 4)  # what is masked does not stretch the scale
    lowest, zero, half = colours(
        figure, axes, (-0.3, 0.3), (0.8, 0.3), (0.8, 1.3)
    )  # beside the numbers
    assert (lowest, zero, half) == (SIGNED.stops[0], "#f5f5f5", colour(SIGNED, 0.75))
    assert words(axes) == {
        (0, 0): "−4.00",
        (0, 1): "0.00",
        (0, 2): "1.00",
        (1, 0): "0.00",
        (1, 1): "2.00",
        (1, 2): "−∞",
    }


def test_no_minus_before_zero():
    assert words(plots.scores(torch.tensor([[-0.001, -0.5]]), ["a"], ["x", "y"]).axes[0]) == {
        (0, 0): "0.00",
        (0, 1): "−0.50",
    }


def test_position_map_is_positions_by_dimensions():
    vectors = Sinusoidal(6)(torch.arange(1, 5))
    axes = plots.position_map(vectors, first=1).axes[0]
    assert np.array_equal(image(axes), vectors.double().numpy())
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("position", "dimension")
    assert rows(axes) == ["1", "2", "3", "4"]
    assert columns(axes) == ["0", "1", "2", "3", "4", "5"]
    assert words(axes)[0, 0] == "0.84"  # sin 1


def test_numbers_of_many_positions_do_not_overlap():
    figure = plots.position_map(Sinusoidal(128)(torch.arange(300)))
    assert_nothing_cut(figure)
    assert_apart(figure, figure.axes[0].get_yticklabels())
    assert_apart(figure, figure.axes[0].get_xticklabels())


def test_similarity_is_the_cosine_by_hand():
    vectors = torch.tensor([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0], [0.0, 0.0]])
    axes = plots.similarity(vectors, ["a", "b", "c", "zero"]).axes[0]
    expected = [[1, 0.96, -1, 0], [0.96, 1, -0.96, 0], [-1, -0.96, 1, 0], [0, 0, 0, 0]]
    assert np.allclose(image(axes), expected)
    assert axes.images[0].get_clim() == (-1, 1)
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("vector", "vector")
    assert words(axes)[0, 1] == "0.96"


def test_similarity_with_others():
    axes = plots.similarity(torch.eye(2), ["a", "b"], torch.tensor([[0.0, 2.0]]), ["c"]).axes[0]
    assert image(axes).tolist() == [[0], [1]]
    assert (rows(axes), columns(axes)) == (["a", "b"], ["c"])


def test_arrays_and_tensors_with_gradients_are_accepted():
    weights = torch.eye(2, requires_grad=True)
    assert image(plots.weights(weights, ["a", "b"]).axes[0]).tolist() == [[1, 0], [0, 1]]
    assert image(plots.weights(np.eye(2, dtype=np.float32), ["a", "b"]).axes[0]).tolist() == [
        [1, 0],
        [0, 1],
    ]


ONE = torch.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: plots.weights(ONE[None, None], ["a", "b"]),
            r"must be \(query, key\); got shape \(1, 1, 2, 2\); choose",
        ),
        (lambda: plots.weights(ONE[0], ["a", "b"]), r"must be \(query, key\); got shape \(2,\)$"),
        (lambda: plots.weights(ONE[:0], []), r"empty: got shape \(0, 2\)"),
        (lambda: plots.weights(ONE, ["a", "b", "c"]), "have 2 rows but 3 labels"),
        (lambda: plots.weights(ONE, ["a", "b"], ["x"]), "have 2 columns but 1 labels"),
        (lambda: plots.weights(ONE, ["a", "b"], predicted=["c"]), "got 2 fed in and 1 predicted"),
        (
            lambda: plots.weights(ONE * torch.nan, ["a", "b"]),
            r"weights\[0, 0\] is nan; only finite",
        ),
        (
            lambda: plots.weights(ONE, ["a", "b"], allowed=torch.eye(2)),
            "boolean, True = may attend; got float32",
        ),
        (
            lambda: plots.weights(ONE, ["a", "b"], allowed=torch.eye(3) > 0),
            r"shape \(3, 3\).* not broadcast to \(2, 2\)",
        ),
        (
            lambda: plots.weights(ONE, ["a", "b"], allowed=torch.eye(2) > 0),
            r"\[0, 1\] is 0.5 where allowed is False",
        ),
        (
            lambda: plots.similarity(ONE, ["a", "b"], torch.eye(3), ["c"]),
            "have 2 dimensions but others have 3",
        ),
        (lambda: plots.position_map(torch.arange(3.0)), r"must be \(position, dimension\)"),
    ],
)
def test_errors_are_one_line(call, message):
    with pytest.raises(RegardError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_wrong_shapes_are_shape_errors():
    with pytest.raises(ShapeError):
        plots.weights(ONE[0], ["a", "b"])


def test_an_unknown_plot_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'pie'"):
        _ = plots.pie


def test_every_public_name_is_a_function():
    assert sorted(plots.__all__) == sorted(plots._HOMES)
    assert all(getattr(plots, name).__name__ == name for name in plots.__all__)


def test_arrays_of_any_layout_are_drawn():
    labels, weights = ["a", "b", "c"], np.full((3, 3), 1 / 3)
    still = weights.copy()
    still.flags.writeable = False
    for given in (weights[::-1], weights.astype(">f8"), weights.astype(np.longdouble), still):
        plots.weights(given, labels, allowed=np.ones((3, 3), dtype=bool)[::-1])
        plots.heads(np.stack([given, given])[::-1], labels)
    with pytest.raises(RegardError, match="must be boolean"):
        plots.weights(weights, labels, allowed=np.ones((3, 3), dtype=int))


def test_other_vectors_need_their_own_labels():
    for wrong in ({"others": -np.eye(3)}, {"other_labels": ["x", "y", "z"]}):
        with pytest.raises(RegardError, match="give both others and other_labels"):
            plots.similarity(np.eye(3), ["a", "b", "c"], **wrong)
