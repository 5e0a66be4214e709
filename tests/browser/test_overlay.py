"""The Alignment page draws the links of selected heads over the others, in their colours."""

import json
from pathlib import Path

import pytest

from regard.search import Greedy
from regard.trace import record
from tests.browser.conftest import until

SOURCE = "attention"
HEADS = json.loads((Path(__file__).parents[2] / "src/regard/plots/palette.json").read_text())[
    "heads"
]
LINES = """Object.fromEntries([...document.querySelectorAll('[data-overlay-lines]')].map(group =>
  [group.dataset.overlayLines, {
    colour: group.getAttribute('stroke'), dash: group.getAttribute('stroke-dasharray'),
    links: [...group.querySelectorAll('path')].map(
      path => [path.dataset.link, Number(path.dataset.weight)])}]))"""


@pytest.fixture(scope="module")
def trace(pipelines):
    return record(pipelines["spelling"], SOURCE, search=Greedy())


def links(weights) -> dict[str, float]:
    """The best source token of each target token; none for the end tokens."""
    matrix = weights.double().numpy()
    found = {}
    for target, row in enumerate(matrix[:-1]):
        best = int(row.argmax())
        if best < len(row) - 1:
            found[f"{best}-{target}"] = float(row[best])
    return found


def test_links_of_selected_heads_are_overlaid(visit, ids, trace):
    page = visit().open(f"#/alignment?m={ids['spelling']}&s={SOURCE}")
    chosen = ["dec.0.cross.1", "dec.1.cross.0", "dec.2.cross.1"]
    for id in chosen:
        page.locator(f"[data-overlay='{id}']").click()
    until(page, f"document.querySelectorAll('[data-overlay-lines]').length === {len(chosen)}")
    lines, colours = page.evaluate(LINES), list(HEADS.values())
    assert list(lines) == chosen
    for id in chosen:
        attention, head = id.rsplit(".", 1)
        assert lines[id]["colour"] == colours[int(head)]
        expected = links(trace[f"{attention}.weights"][int(head)])
        assert dict(lines[id]["links"]) == pytest.approx(expected, abs=1e-6)
    # two heads with one colour differ in their dashes
    assert lines["dec.0.cross.1"]["dash"] != lines["dec.2.cross.1"]["dash"]
    page.locator("[data-overlay='dec.1.cross.0']").click()
    until(page, "document.querySelectorAll('[data-overlay-lines]').length === 2")
    page.get_by_role("button", name="Clear").click()
    until(page, "document.querySelectorAll('[data-overlay-lines]').length === 0")


def test_pinned_heads_are_overlaid(visit, ids):
    page = visit().open(f"#/heads?m={ids['spelling']}&s={SOURCE}")
    page.locator("[data-head='dec.1.cross.0']").focus()
    page.keyboard.press("p")
    page.get_by_role("link", name="Alignment").first.click()
    until(page, "document.querySelectorAll('[data-overlay-lines]').length === 1")
    assert page.locator("[data-overlay='dec.1.cross.0']").get_attribute("aria-pressed") == "true"


def test_overlays_are_part_of_the_link_and_the_table(visit, ids, trace):
    page = visit(width=390, theme="dark").open(
        f"#/alignment?m={ids['spelling']}&s={SOURCE}&o.pins=dec.1.cross.0"
    )
    assert list(page.evaluate(LINES)) == ["dec.1.cross.0"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    view = page.locator("[data-view='alignment.lines']")
    view.get_by_role("button", name="as a table").click()
    rows = [row.split("\t") for row in view.locator("tbody tr").all_inner_texts()]
    own = {row[1]: float(row[-1]) for row in rows if row[0] == "dec.1.cross 0"}
    assert own == pytest.approx(links(trace["dec.1.cross.weights"][0]), abs=1e-3)
