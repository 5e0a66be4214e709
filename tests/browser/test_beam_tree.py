"""The Decoding page: its tree by mouse and keyboard, its sums, and the actions on a hypothesis."""

import json
import re

import pytest

import regard
from regard.search import Beam
from regard.trace import beam_tree
from tests.browser.conftest import download_export, until

SOURCE = "attention"
NODES = "document.querySelectorAll('[data-node]').length"


@pytest.fixture(scope="module")
def made():
    return beam_tree(regard.load("spelling"), SOURCE, Beam(4))


ALL = "&o.pruned=all"


@pytest.fixture
def page(visit, ids):
    """The page with every hypothesis."""
    return visit().open(f"#/decode?m={ids['spelling']}&s={SOURCE}&d=4{ALL}")


def selected(page) -> str:
    return page.locator("#selected").inner_text().removeprefix("Selected: ")


def text_of(made, number: int) -> str:
    return with_symbols(" ".join(made.prefix_labels(number)))


def with_symbols(text: str) -> str:
    return text.replace("< end >", "■").replace("< begin >", "▶").replace("< unknown >", "�")


def test_every_hypothesis_is_shown_with_its_sum(page, made):
    labels = page.evaluate(
        "[...document.querySelectorAll('[data-node]')].map(node => node.ariaLabel)"
    )
    assert len(labels) == len(made.nodes)
    for node, label in zip(made.nodes, labels, strict=True):
        token = with_symbols(made.labels[node.number])
        start = f"step {node.step}: {token}, sum {node.total:.3f}".replace("-", "−")
        assert label.startswith(start)
        if node.status == "pruned":
            assert f"pruned: {node.margin:.3f} below “{text_of(made, node.pruned_by)}”" in label
    page.get_by_label("show all pruned").uncheck()
    until(page, f"{NODES} === {sum(node.status != 'pruned' for node in made.nodes)}")
    until(page, "!location.hash.includes('pruned')")


def test_arrow_keys_move_through_the_tree(page, made):
    answer = made.answers[0]
    assert selected(page) == text_of(made, answer)
    page.locator(f'[data-node="{answer}"]').focus()
    page.keyboard.press("ArrowLeft")
    parent = made.nodes[answer].parent
    assert selected(page) == text_of(made, parent)
    page.keyboard.press("ArrowRight")
    assert selected(page) == text_of(made, made.children(parent)[0].number)
    page.keyboard.press("Home")
    first = next(node for node in made.nodes if node.step == made.nodes[answer].step)
    assert selected(page) == text_of(made, first.number)
    assert page.evaluate("document.activeElement.dataset.node") == str(first.number)


def test_generation_continues_from_a_pruned_hypothesis(page, made):
    pruned = next(n for n in made.nodes if n.status == "pruned" and n.step == 1 and n.token > 2)
    page.locator(f'[data-node="{pruned.number}"]').click()
    shown = page.locator("section", has=page.locator("#selected")).inner_text()
    before = made.nodes[pruned.parent].total
    for number in (before, pruned.logp, pruned.total):
        assert f"{abs(number):.4f}" in shown
    page.get_by_role("button", name="show it").click()
    assert selected(page) == text_of(made, pruned.pruned_by)
    page.locator(f'[data-node="{pruned.number}"]').click()
    page.get_by_role("button", name="Generate from here").click()
    forced = f"“{made.labels[pruned.number]}” forced at step {pruned.step}"
    page.locator("header .chip", has_text=forced).wait_for()
    until(page, f"{NODES} > 0")
    steps = {pruned.step: pruned.token}
    wanted = beam_tree(regard.load("spelling"), SOURCE, Beam(4), forced=steps)
    until(page, f"{NODES} === {len(wanted.nodes)}")
    labels = page.evaluate(
        "[...document.querySelectorAll('[data-node]')].map(node => node.ariaLabel)"
    )
    token = with_symbols(made.labels[pruned.number])
    at_step = [label for label in labels if label.startswith(f"step {pruned.step}:")]
    assert at_step
    assert all(label.startswith(f"step {pruned.step}: {token},") for label in at_step)
    output = " ".join(wanted.prefix_labels(wanted.nodes[wanted.answers[0]].parent))
    assert page.get_by_role("status", name="Output").inner_text() == output
    page.get_by_role("button", name=re.compile("^Remove the edit")).click()
    until(page, f"{NODES} === {len(made.nodes)}")


def test_other_edits_are_searched_greedily(visit, ids):
    page = visit().open(
        f"#/decode?m={ids['spelling']}&s={SOURCE}&d=4{ALL}&e=ablate~dec.0.cross~1~zero"
    )
    assert page.get_by_role("heading", name="Greedy search only").is_visible()
    page.get_by_role("button", name="Remove the edits").click()
    until(page, f"{NODES} > 0")


def test_hypothesis_becomes_the_target_on_every_page(page, made):
    expanded = next(n for n in made.nodes if n.status == "expanded" and n.step == 2)
    page.locator(f'[data-node="{expanded.number}"]').click()
    page.get_by_role("button", name="Use as target").click()
    until(page, "document.querySelector('#target-mode').value === 'teacher-forcing'")
    text = json.dumps(" ".join(made.prefix_labels(expanded.number)))
    until(page, f"[...document.querySelectorAll('input')].some(box => box.value === {text})")
    until(page, f"{NODES} > 0")
    assert page.locator("[data-node]").count() == len(made.nodes)  # the search is the same


def test_saved_page_contains_the_tree(visit, ids, made, offline_page, tmp_path):
    visited = visit()
    page = visited.open(f"#/decode?m={ids['spelling']}&s={SOURCE}{ALL}")
    assert page.get_by_role("heading", name=re.compile("^Greedy search")).is_visible()
    page.get_by_role("button", name="Search with beam size 4").click()
    until(page, f"{NODES} === {len(made.nodes)}")
    visited.wait_until_idle()
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    until(offline_page, f"{NODES} === {len(made.nodes)}")
    assert offline_page.get_by_role("button", name="Generate from here").is_disabled()
