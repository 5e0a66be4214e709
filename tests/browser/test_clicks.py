"""A click: the drawer opens on its number, and the page around it follows without a rebuild."""

import pytest

from tests.browser.conftest import until
from tests.browser.lesson_pages import open_lesson
from tests.browser.test_flow import FLOW, SOURCE

CELL = """([i, j]) => {
  const node = document.querySelector("[data-heatmap='lab.weights']");
  const {left, top, cellWidth, cellHeight} = node.dataset;
  const canvas = node.querySelector("canvas");
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new MouseEvent("click", {bubbles: true,
    clientX: box.left + +left + (j + 0.5) * +cellWidth,
    clientY: box.top + +top + (i + 0.5) * +cellHeight}));
}"""
# Labels of the planes that leave the drawing.
CUT = """[...document.querySelectorAll('[data-figure] .plane svg')].flatMap((svg) => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter((text) => text.textContent.trim() !== '0')
    .filter((text) => text.getBoundingClientRect().right > box.right + 1)
    .map((text) => text.textContent);
})"""


@pytest.fixture
def lab(visit, ids):
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.1.cross&i=1&j=1")
    until(page, FLOW)
    return page


def test_page_follows_a_click_without_a_rebuild(lab):
    lab.evaluate("window.before = document.querySelector('[data-flow] [data-cell]')")
    lab.evaluate(CELL, [4, 2])
    until(lab, "document.querySelector('[data-drawer] .name')?.innerText.endsWith('[0,4,2]')")
    until(lab, "document.querySelector('[data-flow]').innerText.includes('query of 4 ')")
    until(lab, "document.querySelector('[data-flow] tr.chosen th').innerText.startsWith('2')")
    assert lab.evaluate("window.before.isConnected")
    until(lab, "location.hash.includes('&i=4&j=2')")


def test_second_click_replaces_the_first(lab):
    for place in ([2, 0], [3, 1], [5, 3]):
        lab.evaluate(CELL, place)
    until(lab, "document.querySelector('[data-drawer] .name')?.innerText.endsWith('[0,5,3]')")
    assert lab.locator("[data-drawer] nav").count() == 0  # a path has one number
    lab.keyboard.press("Escape")
    lab.locator("[data-drawer]").wait_for(state="detached")
    until(lab, "document.activeElement.getAttribute('role') === 'gridcell'")


def test_page_makes_room_for_the_drawer(lab):
    width = "document.querySelector('main').clientWidth"
    before = lab.evaluate(width)
    lab.evaluate(CELL, [4, 2])
    until(lab, f"{width} < {before}")
    right, left = lab.evaluate(
        "[document.querySelector('main').getBoundingClientRect().right,"
        " document.querySelector('[data-drawer]').getBoundingClientRect().left]"
    )
    assert right <= left + 1


def test_step_stays_when_an_attention_is_selected(lab):
    lab.locator("header input[type=range]").evaluate(
        "node => { node.value = 3; node.dispatchEvent(new Event('input', {bubbles: true})) }"
    )
    lab.locator("main select").first.select_option("enc.0.self")
    lab.locator("main ol[aria-label] button").nth(6).click()
    lab.locator("main select").first.select_option("dec.0.self")
    until(lab, "location.hash.includes('a=dec.0.self')")
    until(lab, "document.querySelector('[data-flow]').innerText.includes('query of 3 ')")
    assert lab.locator("header input[type=range]").input_value() == "3"


@pytest.mark.parametrize("width", [320, 900, 1280])
def test_labels_of_lesson_4_stay_in_their_planes(visit, width):
    page = open_lesson(visit(width=width), "4", step=1)
    until(page, "document.querySelectorAll('[data-figure] .plane svg text').length > 6")
    assert page.evaluate(CUT) == []
