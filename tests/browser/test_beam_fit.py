"""The beam tree fits the width of the page and collapses pruned hypotheses."""

import pytest

import regard
from regard.search import Beam
from regard.trace import beam_tree
from tests.browser.conftest import until

SOURCE = "attention"
NODES = "document.querySelectorAll('[data-node]').length"
FITS = """() => {
  const tree = document.querySelector('[data-node]').parentElement.parentElement;
  const box = tree.getBoundingClientRect();
  return [...tree.querySelectorAll('[data-node], [data-pruned]')].every(node => {
    const own = node.getBoundingClientRect();
    return own.left >= box.left && own.right <= box.right && own.width >= 60;
  }) && tree.scrollWidth <= tree.clientWidth;
}"""
APART = """() => {
  const boxes = [...document.querySelectorAll('[data-node], [data-pruned]')]
    .map(node => node.getBoundingClientRect());
  return boxes.every((a, k) => boxes.slice(k + 1).every(b =>
    a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top));
}"""


@pytest.fixture(scope="module")
def made():
    return beam_tree(regard.load("spelling"), SOURCE, Beam(4))


@pytest.mark.parametrize("width", [320, 390, 860, 1280])
@pytest.mark.parametrize("option", ["", "&o.pruned=all"])
def test_the_tree_fits_the_width(visit, ids, width, option):
    page = visit(width=width).open(f"#/decode?m={ids['spelling']}&s={SOURCE}&d=4{option}")
    until(page, f"{NODES} > 0")
    assert page.evaluate(FITS)
    assert page.evaluate(APART)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_step_expands_by_keyboard(visit, ids, made):
    page = visit().open(f"#/decode?m={ids['spelling']}&s={SOURCE}&d=4")
    kept = sum(node.status != "pruned" for node in made.nodes)
    until(page, f"{NODES} === {kept}")
    pruned = sum(node.status == "pruned" and node.step == 2 for node in made.nodes)
    chip = page.locator("[data-pruned='2']")
    assert chip.inner_text() == f"+ {pruned} pruned"
    assert chip.get_attribute("aria-expanded") == "false"
    chip.focus()
    page.keyboard.press("Enter")
    until(page, f"{NODES} === {kept + pruned}")
    until(page, "document.activeElement.dataset.pruned === '2'")
    assert chip.get_attribute("aria-expanded") == "true"
    until(page, "location.hash.includes('o.pruned=2')")
    page.keyboard.press("Enter")
    until(page, f"{NODES} === {kept}")


def test_a_selected_pruned_hypothesis_is_always_shown(visit, ids, made):
    pruned = next(node for node in made.nodes if node.status == "pruned" and node.step == 3)
    page = visit().open(f"#/decode?m={ids['spelling']}&s={SOURCE}&d=4&o.node={pruned.number}")
    until(page, f"document.querySelector('[data-node=\"{pruned.number}\"]') !== null")
    kept = sum(node.status != "pruned" for node in made.nodes)
    assert page.evaluate(NODES) == kept + 1


def test_arrows_follow_the_rows_of_a_narrow_tree(visit, ids, made):
    page = visit(width=390).open(f"#/decode?m={ids['spelling']}&s={SOURCE}&d=4")
    answer = made.answers[0]
    page.locator(f'[data-node="{answer}"]').focus()
    page.keyboard.press("ArrowUp")
    parent = made.nodes[answer].parent
    assert page.evaluate("document.activeElement.dataset.node") == str(parent)
    page.keyboard.press("ArrowDown")
    child = next(n for n in made.children(parent) if n.status != "pruned").number
    assert page.evaluate("document.activeElement.dataset.node") == str(child)
