"""The wall of heads, read back from what was drawn."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from regard import plots
from regard.attention import Attention, causal
from regard.attention.scores import ScaledDot
from regard.errors import RegardError
from regard.plots.palette import head_colour
from tests.plots.reading import assert_apart, assert_nothing_cut, columns, hatched, image, rows

TOKENS = ["the", "man", "hit", "the", "car"]
SHOWN = ["the₀", "man", "hit", "the₃", "car"]


@pytest.fixture(scope="module")
def seen():
    queries, keys = torch.randn(3, 6, 5, 11), torch.randn(3, 6, 5, 11)
    return Attention(ScaledDot(6, 11)).intermediates(queries, keys, keys, mask=causal)


@pytest.fixture(scope="module")
def figure(seen):
    return plots.heads(
        seen.weights, TOKENS, allowed=seen.allowed, title="three layers of six heads"
    )


def test_each_head_is_drawn_under_its_own_number(figure, seen):
    maps = {axes.get_title(): axes for axes in figure.axes if axes.images}
    assert len(maps) == 18
    for layer in range(3):
        for head in range(6):
            drawn = image(maps[f"layer {layer} · head {head}"])
            assert np.array_equal(drawn.filled(0), seen.weights[layer, head].double().numpy())


def test_heads_are_columns_and_layers_are_rows(figure):
    places = {axes.get_title(): axes.get_position() for axes in figure.axes if axes.images}
    assert (
        places["layer 0 · head 0"].y0
        > places["layer 1 · head 0"].y0
        > places["layer 2 · head 0"].y0
    )
    assert places["layer 0 · head 0"].x0 == pytest.approx(places["layer 2 · head 0"].x0)
    across = [places[f"layer 1 · head {i}"].x0 for i in range(6)]
    assert across == sorted(across)


def test_each_head_has_its_colour(figure):
    for axes in figure.axes:
        if axes.images:
            head = int(axes.get_title()[-1])
            assert {to_hex(spine.get_edgecolor()) for spine in axes.spines.values()} == {
                head_colour(head)
            }


def test_only_the_outer_edges_show_tokens(figure):
    maps = {axes.get_title(): axes for axes in figure.axes if axes.images}
    assert rows(maps["layer 1 · head 0"]) == SHOWN
    assert rows(maps["layer 1 · head 1"]) == []
    assert columns(maps["layer 2 · head 5"]) == SHOWN
    assert columns(maps["layer 1 · head 5"]) == []


def test_axes_are_titled_once(figure):
    assert {text.get_text() for text in figure.texts} == {
        "query (attends)",
        "key (is matched)",
        "three layers of six heads",
    }


def test_masked_cells_are_hatched_in_every_head(figure, seen):
    for axes in figure.axes:
        if axes.images:
            assert np.array_equal(hatched(axes), ~seen.allowed[0, 0].numpy())


def test_one_layer_wraps_into_full_rows():
    figure = plots.heads(torch.full((8, 3, 3), 1 / 3), list("abc"))
    maps = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in maps] == [f"head {i}" for i in range(8)]
    assert [round(axes.get_position().y0, 6) for axes in maps[:4]] == [
        round(maps[0].get_position().y0, 6)
    ] * 4
    assert maps[4].get_position().y0 < maps[3].get_position().y0


@pytest.mark.parametrize("count", [1, 2, 7, 11, 16])
def test_any_number_of_heads_is_drawn(count):
    figure = plots.heads(torch.full((count, 2, 4), 1 / 4), ["a", "b"], list("wxyz"))
    assert sum(bool(axes.images) for axes in figure.axes) == count
    assert_nothing_cut(figure)


def test_titles_do_not_overlap_and_nothing_is_cut(figure):
    assert_nothing_cut(figure)
    assert_apart(figure, [*(axes.title for axes in figure.axes), *figure.texts])


def test_decoder_rows():
    figure = plots.heads(
        torch.full((2, 2, 3), 1 / 3), ["<s>", "der"], list("abc"), predicted=["der", "Hund"]
    )
    assert rows(figure.axes[0]) == ["after <s> → der", "after der → Hund"]


def test_one_signed_scale_for_all_heads_if_a_weight_is_outside():
    weights = torch.stack([torch.eye(2), torch.eye(2) * -3])
    figure = plots.heads(weights, ["a", "b"])
    assert [axes.images[0].get_clim() for axes in figure.axes[:2]] == [(-3, 3)] * 2
    assert figure.axes[-1].get_yticks().tolist() == [-3, 0, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.heads(torch.eye(2), ["a", "b"]), r"must be \(layer, head, query, key\)"),
        (
            lambda: plots.heads(torch.eye(2)[None], ["a"]),
            "are 2 queries × 2 keys; got 1 and 1 tokens",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(RegardError, match=message):
        call()
