"""Pictures of a whole trace, read back from what was drawn."""

import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from sklearn.decomposition import PCA

from regard import plots
from regard.errors import RegardError
from regard.plots import trace_plots
from regard.trace import record
from regard.trace import residual_analysis as embedded
from tests.plots.reading import assert_apart, assert_nothing_cut, columns, hatched, image, rows
from tests.trace.random_models import random_model

SOURCE = [*"zebra", "■"]
FED = ["▶", "Z", "IY", "B"]
SAID = ["after ▶ → Z", "after Z → IY", "after IY → B", "after B → ■"]


@pytest.fixture(scope="module")
def trace():
    """Positions in the scores, norms after the sums."""
    return record(random_model("alibi"), "zebra", "Z IY B")


@pytest.fixture(scope="module")
def before():
    """Positions added, norms before the sums."""
    return record(random_model("learned"), "zebra", "Z IY B")


@pytest.fixture(scope="module")
def recurrent():
    return record(random_model("additive"), "zebra", "Z IY B")


def maps(figure):
    return [axes for axes in figure.axes if axes.images]


def test_stages_show_the_numbers_of_the_trace(trace):
    figure = plots.stages(trace, "dec.0.self", 3)
    drawn = {axes.get_title(): axes for axes in maps(figure)}
    assert list(drawn) == ["dots", "scores", "bias", "biased", "masked", "weights"]
    future = np.triu(np.ones((4, 4), dtype=bool), 1)
    for stage, axes in drawn.items():
        expected = trace[f"dec.0.self.{stage}"][3].double().numpy()
        hidden = future if stage in ("masked", "weights") else np.zeros_like(future)
        assert np.array_equal(image(axes).filled(np.nan)[~hidden], expected[~hidden])
        assert np.array_equal(hatched(axes), hidden)
        assert (axes.get_xlabel(), columns(axes)) == ("key (is matched)", FED)
    assert (drawn["dots"].get_ylabel(), rows(drawn["dots"])) == ("query (attends)", SAID)
    assert drawn["weights"].images[0].get_clim() == (0, 1)
    low, high = drawn["dots"].images[0].get_clim()
    assert -low == high == trace["dec.0.self.dots"][3].abs().max()
    assert figure.texts[0].get_text() == "dec.0.self · head 3"
    assert_nothing_cut(figure)


def test_stages_of_cross_attention_and_of_a_recurrent_model(trace, recurrent):
    crossing = maps(plots.stages(trace, "dec.0.cross", 1))
    assert [columns(axes) for axes in crossing] == [SOURCE] * len(crossing)
    assert not any(hatched(axes).any() for axes in crossing)
    energy, weights = maps(plots.stages(recurrent, "attn"))
    assert np.array_equal(image(energy), recurrent["attn.energy"][0].double())
    assert np.array_equal(image(weights), recurrent["attn.weights"][0].double())


def test_an_edited_weight_is_drawn_under_the_mask():
    row = {
        "kind": "row",
        "attention": "dec.0.self",
        "head": 1,
        "query": 0,
        "weights": [0, 2.5, 0, 0],
    }
    changed = record(random_model("alibi"), "zebra", "Z IY B", edits=[row])
    weights = maps(plots.stages(changed, "dec.0.self", 1))[-1]
    assert weights.get_title() == "weights"
    assert image(weights)[0, 1] == 2.5
    assert hatched(weights)[0].tolist() == [False, False, True, True]


@pytest.mark.parametrize(("kind", "layers"), [("encoder", 2), ("decoder", 1), ("cross", 1)])
def test_the_wall_has_every_layer_and_head(trace, kind, layers):
    figure = plots.head_wall(trace, kind)
    drawn = {axes.get_title(): axes for axes in maps(figure)}
    assert set(drawn) == {
        f"layer {layer} · head {head}" for layer in range(layers) for head in range(4)
    }
    named = {"encoder": "enc.{}.self", "decoder": "dec.{}.self", "cross": "dec.{}.cross"}[kind]
    for title, axes in drawn.items():
        layer, head = map(int, re.findall(r"\d", title))
        assert np.array_equal(
            image(axes).filled(0), trace[f"{named.format(layer)}.weights"][head].double()
        )
        assert hatched(axes).any() == (kind == "decoder")
    assert rows(drawn["layer 0 · head 0"]) == (SOURCE if kind == "encoder" else SAID)
    assert columns(drawn[f"layer {layers - 1} · head 3"]) == (FED if kind == "decoder" else SOURCE)


@pytest.fixture(scope="module")
def looked(trace):
    """The same trace with an alignment known beforehand: 0-0, 4-1, and IY attends to END."""
    weights = torch.full((4, 6), 0.02)
    for row, column in enumerate([0, 4, 5, 5]):
        weights[row, column] = 0.9
    patch = {
        "kind": "patch",
        "name": "dec.0.cross.weights",
        "values": weights.expand(4, 4, 6).tolist(),
    }
    return record(random_model("alibi"), "zebra", "Z IY B", edits=[patch])


def test_alignment_marks_its_links(looked, trace):
    figure = plots.alignment(looked)
    axes = maps(figure)[0]
    assert np.allclose(image(axes), looked["dec.0.cross.weights"].mean(0))
    frames = [tuple(frame.get_center()) for frame in axes.patches]
    assert frames == [(0, 0), (4, 1)]
    assert (rows(axes), columns(axes)) == (SAID, SOURCE)
    assert_nothing_cut(figure)
    one = maps(plots.alignment(trace, "dec.0.cross", 2))[0]
    assert np.array_equal(image(one), trace["dec.0.cross.weights"][2].double())


def test_lines_are_as_thick_as_their_weights(looked):
    figure = plots.alignment_lines(looked, "dec.0.cross")
    (lines,) = figure.axes[0].collections
    widths = {}
    heights = {text.get_text(): text.get_position()[1] for text in figure.axes[0].texts}
    for (start, end), width in zip(lines.get_segments(), lines.get_linewidths(), strict=True):
        widths[start[1], end[1]] = width
    assert len(widths) == 24
    for row, label in enumerate(SAID):
        for column, token in enumerate(SOURCE):
            weight = float(looked["dec.0.cross.weights"][0, row, column])
            assert widths[heights[token], heights[label]] == pytest.approx(7 * weight)
    linked = [to_hex(colour) for colour in lines.get_colors()]
    assert linked.count("#d55e00") == 2
    assert linked[-2:] == ["#d55e00"] * 2
    assert_apart(figure, figure.axes[0].texts)


def test_block_walk_shows_norms_of_additions_and_sums(before):
    figure = plots.block_walk(before, "target", 2)
    axes = figure.axes[0]
    blocks = ["dec.0.self.out", "dec.0.cross.out", "dec.0.ffn.out"]
    assert rows(axes) == ["tgt.sum", *blocks]
    bars = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in axes.patches}
    assert bars == pytest.approx(
        {i: np.linalg.norm(before[name][2]) for i, name in enumerate(blocks, 1)}
    )
    sums = np.cumsum([before[name][2].numpy() for name in ("tgt.sum", *blocks)], axis=0)
    assert axes.lines[0].get_xdata() == pytest.approx(np.linalg.norm(sums, axis=1), rel=1e-5)
    cosine = sums[0] @ before[blocks[0]][2].numpy() / np.linalg.norm(sums[0]) / bars[1]
    assert f"{cosine:.2f}".replace("-", "−") == axes.texts[0].get_text()
    assert axes.get_title() == "target 2: after IY → B"


def test_block_walk_of_a_recurrent_model_shows_states(recurrent):
    axes = plots.block_walk(recurrent, "source", 1).axes[0]
    assert rows(axes) == ["src.embed", "enc.0.h"]
    norms = [np.linalg.norm(recurrent[name][1]) for name in rows(axes)]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(norms)


def test_output_shows_the_most_likely_and_marks_the_next(before):
    figure = plots.output(before, 1, 4)
    axes = figure.axes[0]
    logits = before["out.logits"][1].double().numpy()
    ps = np.exp(logits) / np.exp(logits).sum()
    best = np.argsort(-ps)[:4]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(ps[best], rel=1e-5)
    label = before.pipeline.bundle.target.label
    assert rows(axes) == [
        label(int(id)).replace("< end >", "■").replace("< begin >", "▶") for id in best
    ]
    followed = before.following[1].id
    assert [to_hex(bar.get_facecolor()) == "#d55e00" for bar in axes.patches] == [
        id == followed for id in best
    ]
    ranks = figure.axes[1]
    assert ranks.lines[0].get_xdata()[-1] == 1 + (ps > ps[followed]).sum()
    assert ranks.get_xlabel() == f"rank of “IY” among {len(ps)}"
    assert_nothing_cut(figure)


@pytest.mark.parametrize("which", ["trace", "before"])
def test_the_logit_lens_ends_at_the_models_output(which, request):
    seen = request.getfixturevalue(which)
    model = seen.pipeline.model
    layers = trace_plots.logit_lens(seen, 2)
    torch.testing.assert_close(list(layers.values())[-1], seen["out.logprobs"][2].exp())
    norm = "resid" if which == "before" else "norm"
    assert list(layers) == [
        "tgt.sum",
        *(f"dec.0.{norm}{i}" for i in (1, 2, 3)),
        *["dec.norm"] * (which == "before"),
    ]
    with torch.no_grad():
        expected = model.project(model.decoder_norm(seen["tgt.sum"][2:3]))[0].softmax(-1)
    torch.testing.assert_close(layers["tgt.sum"], expected)


def test_a_recurrent_output_has_no_layers(recurrent):
    assert len(plots.output(recurrent, 0, 3).axes) == 1


def test_embedding_maps_add_up(before):
    figure = plots.embedding(before, "target")
    drawn = {axes.get_title(): axes for axes in maps(figure)}
    assert list(drawn) == ["tgt.embed", "tgt.position", "tgt.sum"]
    embed, position, total = (image(axes) for axes in drawn.values())
    np.testing.assert_allclose(embed + position, total, atol=1e-6)
    assert np.array_equal(embed, before["tgt.embed"].double())
    assert len({axes.images[0].get_clim() for axes in drawn.values()}) == 1
    assert all(rows(axes) == FED for axes in drawn.values())
    assert_nothing_cut(figure)


def test_embedding_without_added_positions_is_one_map(trace, recurrent):
    for one in (trace, recurrent):
        assert [axes.get_title() for axes in maps(plots.embedding(one))] == [
            "src.embed (no position is added)"
        ]


def test_the_plane_has_the_greatest_variance(before):
    axes = plots.embedding_plane(before).axes[0]
    table = before.pipeline.model.source.table.detach().double().numpy()
    pca = PCA(2).fit(table)
    others, here = (np.asarray(group.get_offsets()) for group in axes.collections)
    ids = sorted({piece.id for piece in before.source})
    expected = pca.transform(table)
    np.testing.assert_allclose(np.abs(here), np.abs(expected[ids]), atol=1e-6)
    np.testing.assert_allclose(np.abs(others), np.abs(np.delete(expected, ids, 0)), atol=1e-6)
    first, second = pca.explained_variance_ratio_
    assert axes.get_xlabel() == f"first component ({100 * first:.1f} % of the variance)"
    assert axes.get_ylabel() == f"second component ({100 * second:.1f} % of the variance)"
    bold = {text.get_text() for text in axes.texts if text.get_fontweight() == "bold"}
    assert bold == set(SOURCE)


def test_a_large_vocabulary_is_shown_around_the_sentence(before, monkeypatch):
    monkeypatch.setattr(embedded, "WHOLE", 3)
    monkeypatch.setattr(embedded, "AROUND", 1)
    axes = plots.embedding_plane(before, "target").axes[0]
    shown = sum(len(group.get_offsets()) for group in axes.collections)
    assert 4 < shown <= 8
    assert axes.get_title() == f"{shown} of {len(before.pipeline.bundle.target)} target embeddings"


@pytest.mark.parametrize("vectors", [torch.ones(1, 4), torch.tensor([[1.0], [3.0]])])
def test_fewer_vectors_than_a_plane_needs(vectors):
    places, (first, second) = embedded.pca_plane(vectors)
    assert places.shape == (len(vectors), 2)
    assert (first, second) == (len(vectors) - 1, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: plots.stages(t, "dec.9.self"), "unknown attention 'dec.9.self'; did you mean"),
        (lambda t: plots.stages(t, "dec.0.self", 4), "dec.0.self has heads 0 to 3; got 4"),
        (
            lambda t: plots.head_wall(t, "self"),
            "no attention of kind 'self'; choose from 'cross', 'decoder', 'encoder'",
        ),
        (
            lambda t: plots.alignment(t, head=1),
            "the mean is over all heads; name an attention to see its head 1",
        ),
        (lambda t: plots.alignment(t, "enc.0.self"), "unknown cross-attention 'enc.0.self'"),
        (
            lambda t: plots.block_walk(t, "source", 6),
            "position 6 is not one of the source's 0 to 5",
        ),
        (lambda t: plots.block_walk(t, "left", 0), "side must be 'source' or 'target'; got 'left'"),
        (lambda t: plots.output(t, 0, 0), "n must be at least 1; got 0"),
    ],
)
def test_errors(trace, call, message):
    with pytest.raises(RegardError, match=message):
        call(trace)


def test_a_bottleneck_has_no_alignment():
    none = record(random_model("bottleneck"), "zebra", "Z IY")
    with pytest.raises(RegardError, match="no attention to its source"):
        plots.alignment(none)
    with pytest.raises(RegardError, match=r"it has no attention$"):
        plots.head_wall(none)
