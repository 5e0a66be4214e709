"""The grid of heads: measured names, their numbers, its layout, and ablation on the same grid."""

import numpy as np
import pytest

from regard.config import TransformerSettings
from regard.search import Greedy
from regard.trace import record
from tests.browser.conftest import Visit, download_export, explorer, new_context, until
from tests.browser.head_scores import all_heads, row_scores
from tests.browser.test_derived_numbers import drawer, explain
from tests.explore.helpers import save_bundle

SOURCE = "attention"
TILES = """[...document.querySelectorAll('[data-head]')].map(node => {
  const [tile, box] = [node.closest('li'), node.getBoundingClientRect()];
  const pattern = tile.querySelector('[data-pattern]');
  return {id: node.dataset.head, pattern: pattern.dataset.pattern,
          named: pattern.dataset.named === 'true', text: pattern.innerText,
          score: Number(pattern.querySelector('button').innerText.replace('−', '-')),
          label: node.ariaLabel, x: box.x, y: box.y + scrollY, width: box.width};
})"""


@pytest.fixture(scope="module")
def traces(pipelines):
    return {
        name: record(pipelines[name], SOURCE, search=Greedy())
        for name in ("spelling", "spelling-recurrent")
    }


@pytest.mark.parametrize("page_name", ["heads", "ablation"])
@pytest.mark.parametrize("model", ["spelling", "spelling-recurrent"])
def test_every_head_has_its_measured_name(visit, ids, traces, model, page_name):
    page = visit().open(f"#/{page_name}?m={ids[model]}&s={SOURCE}")
    until(page, "document.querySelectorAll('[data-head]').length > 0")
    expected, tiles = all_heads(traces[model]), page.evaluate(TILES)
    assert {tile["id"] for tile in tiles} == set(expected)
    for tile in tiles:
        name, score = expected[tile["id"]]
        assert tile["pattern"] == name, tile
        assert tile["score"] == pytest.approx(score, abs=0.0051)
        assert tile["named"] == (score >= 0.5)
        assert tile["text"].startswith(name if score >= 0.5 else f"mixed, {name}")
        assert name in tile["label"]


@pytest.mark.parametrize("page_name", ["heads", "ablation"])
def test_rows_are_layers_and_columns_are_heads(visit, ids, page_name):
    page = visit().open(f"#/{page_name}?m={ids['spelling']}&s={SOURCE}")
    until(page, "document.querySelectorAll('[data-head]').length === 36")
    tiles = {tile["id"]: tile for tile in page.evaluate(TILES)}
    rows = []
    for stack, part in (("enc", "self"), ("dec", "self"), ("dec", "cross")):
        for layer in range(3):
            row = [tiles[f"{stack}.{layer}.{part}.{head}"] for head in range(4)]
            assert len({tile["y"] for tile in row}) == 1
            rows.append([tile["x"] for tile in row])
            assert rows[-1] == sorted(rows[-1])
    assert rows == [rows[0]] * 9  # head k is below head k
    first_of_groups = [tiles[f"{name}.0"]["y"] for name in ("enc.0.self", "dec.0.self")]
    assert first_of_groups == sorted(first_of_groups)


def test_score_of_a_head_is_explained(visit, ids, traces):
    page = visit().open(f"#/heads?m={ids['spelling']}&s={SOURCE}")
    name = all_heads(traces["spelling"])["enc.1.self.3"][0]
    weights = traces["spelling"]["enc.1.self.weights"][3].double().numpy()
    rows = row_scores(weights, "encoder", name)
    value, result, sizes = explain(page, f"score of {name}, layer 1, head 3")
    assert (value, result) == (pytest.approx(np.mean(rows), abs=1e-9),) * 2
    assert sizes == pytest.approx(rows, abs=1e-9)
    page.locator("[data-drawer] tbody").get_by_role("button").first.click()  # the first row
    until(page, "document.querySelector('[data-drawer]').innerText.includes('uniform')")
    assert drawer(page)[1] == pytest.approx(rows[0], abs=1e-9)


def test_scores_are_explained_in_a_saved_page(visit, ids, traces, offline_page, tmp_path):
    page = visit().open(f"#/heads?m={ids['spelling-recurrent']}&s={SOURCE}")
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    until(offline_page, "document.querySelectorAll('[data-head]').length === 1")
    name, score = all_heads(traces["spelling-recurrent"])["attn.0"]
    _, result, _ = explain(offline_page, f"score of {name}, layer 0, head 0")
    assert result == pytest.approx(score, abs=1e-9)


def test_arrow_keys_move_in_the_grid(visit, ids):
    page = visit().open(f"#/heads?m={ids['spelling']}&s={SOURCE}")
    page.locator("[data-head='dec.0.cross.0']").focus()
    focused = "document.activeElement.dataset.head"
    for key, head in (
        ("ArrowDown", "dec.1.cross.0"),
        ("ArrowRight", "dec.1.cross.1"),
        ("End", "dec.1.cross.3"),
        ("ArrowRight", "dec.2.cross.0"),
        ("ArrowUp", "dec.1.cross.0"),
        ("ArrowLeft", "dec.0.cross.3"),
    ):
        page.keyboard.press(key)
        assert page.evaluate(focused) == head
    page.keyboard.press("Enter")
    until(page, "location.hash.startsWith('#/attention')")
    assert "a=dec.0.cross" in page.url
    assert "h=3" in page.url


def test_effect_in_the_grid_is_explained(visit, ids, traces, pipelines):
    page = visit().open(f"#/ablation?m={ids['spelling']}&s={SOURCE}")
    until(page, "document.querySelectorAll('[data-effect]').length === 36")
    trace = traces["spelling"]
    edits = [{"kind": "ablate", "attention": "dec.1.self", "head": 2}]
    without = record(pipelines["spelling"], SOURCE, trace.answer.text, edits=edits)["out.total"]
    page.locator("[data-effect='dec.1.self.2'] button").click()
    value, result, sizes = drawer(page)
    assert sizes == pytest.approx([float(trace["out.total"]), -float(without)], abs=1e-4)
    assert (value, result) == (pytest.approx(sum(sizes), abs=1e-4),) * 2


def test_names_follow_an_ablation(visit, ids, pipelines):
    """After an ablation the names are those of the edited trace."""
    edits = [{"kind": "ablate", "attention": "enc.0.self", "head": 3, "by": "uniform"}]
    edited = record(pipelines["spelling"], SOURCE, search=Greedy(), edits=edits)
    page = visit().open(
        f"#/ablation?m={ids['spelling']}&s={SOURCE}&e=ablate~enc.0.self~3~uniform&o.method=uniform"
    )
    until(page, "document.querySelectorAll('[data-head]').length === 36")
    tiles = {tile["id"]: tile for tile in page.evaluate(TILES)}
    for id, (name, score) in all_heads(edited).items():
        assert tiles[id]["score"] == pytest.approx(score, abs=0.0051)
        if id != "enc.0.self.3":  # uniform: every pattern has score 0
            assert tiles[id]["pattern"] == name
    assert page.locator("[data-head='enc.0.self.3']").get_attribute("aria-checked") == "true"
    # the effects are those of the full model, also when a link starts with an edit
    until(page, "document.querySelectorAll('[data-effect]').length === 36")
    full = record(pipelines["spelling"], SOURCE, search=Greedy())
    edits = [{"kind": "ablate", "attention": "enc.1.self", "head": 3}]
    without = record(pipelines["spelling"], SOURCE, full.answer.text, edits=edits)
    page.locator("[data-effect='enc.1.self.3'] button").click()
    expected = float(full["out.total"] - without["out.total"])
    assert drawer(page)[:2] == (pytest.approx(expected, abs=1e-4),) * 2


@pytest.fixture(scope="module")
def many_heads(tmp_path_factory):
    settings = TransformerSettings(
        width=48,
        heads=12,
        encoder_layers=12,
        decoder_layers=12,
        ffn_width=16,
        tie_embeddings="none",
    )
    folder = save_bundle(tmp_path_factory.mktemp("many"), settings=settings)
    with explorer(folder) as address:
        yield address


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark"), (320, "light")])
def test_twelve_by_twelve_heads_stay_readable(browser, many_heads, width, theme):
    context = new_context(
        browser,
        viewport={"width": width, "height": 900},
        color_scheme=theme,
        reduced_motion="reduce",
    )
    page = Visit(context.new_page(), many_heads).open("#/heads?s=zebra")
    until(page, "document.querySelectorAll('[data-head]').length === 432")
    tiles = page.evaluate(TILES)
    assert min(tile["width"] for tile in tiles) >= 60
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    cut = """[...document.querySelectorAll('[data-pattern]')].filter(
      node => node.scrollWidth > node.clientWidth + 1).length"""
    assert page.evaluate(cut) == 0
    if width == 1280:  # a layer is one line
        assert len({tile["y"] for tile in tiles if tile["id"].startswith("enc.5.self")}) == 1
    context.close()
