"""The page of the search: its tree by mouse and keyboard, its sums, and what can be done from a node."""

import json
import re

import pytest

import regard
from regard.search import Beam
from regard.trace import beam_tree
from tests.browser.conftest import download_export, until

SOURCE = "attention"


@pytest.fixture(scope="module")
def made():
    return beam_tree(regard.load("spelling"), SOURCE, Beam(4))


@pytest.fixture
def page(visit, ids):
    return visit().open(f"#/decode?m={ids['spelling']}&s={SOURCE}&d=4")


def chosen(page) -> str:
    return page.locator("#chosen").inner_text().removeprefix("Chosen: ")


def words(made, number: int) -> str:
    return signed(" ".join(made.prefix_labels(number)))


def signed(text: str) -> str:
    return text.replace("< end >", "■").replace("< begin >", "▶").replace("< unknown >", "�")


def test_every_node_is_there_with_its_sum(page, made):
    labels = page.evaluate("[...document.querySelectorAll('[data-node]')].map(node => node.ariaLabel)")
    assert len(labels) == len(made.nodes)
    for node, label in zip(made.nodes, labels, strict=True):
        piece = signed(made.labels[node.number])
        assert label.startswith(f"step {node.step}: {piece}, sum {node.total:.3f}".replace("-", "−"))
        if node.fate == "pruned":
            assert f"fell: {node.behind:.3f} behind “{words(made, node.rival)}”" in label
    page.get_by_label("show what fell").uncheck()
    until(page, f"document.querySelectorAll('[data-node]').length === {sum(n.fate != 'pruned' for n in made.nodes)}")
    until(page, "location.hash.includes('pruned=0')")


def test_it_opens_at_the_answer_and_arrows_lead_through_it(page, made):
    answer = made.answers[0]
    assert chosen(page) == words(made, answer)
    page.locator(f'[data-node="{answer}"]').focus()
    page.keyboard.press("ArrowLeft")
    parent = made.nodes[answer].parent
    assert chosen(page) == words(made, parent)
    page.keyboard.press("ArrowRight")
    assert chosen(page) == words(made, made.children(parent)[0].number)
    page.keyboard.press("Home")
    first = next(node for node in made.nodes if node.step == made.nodes[answer].step)
    assert chosen(page) == words(made, first.number)
    assert page.evaluate("document.activeElement.dataset.node") == str(first.number)


def test_who_fell_can_be_asked_why_and_revived(page, made):
    fell = next(n for n in made.nodes if n.fate == "pruned" and n.step == 1 and n.token > 2)
    page.locator(f'[data-node="{fell.number}"]').click()
    shown = page.locator("section", has=page.locator("#chosen")).inner_text()
    before = made.nodes[fell.parent].total
    for number in (before, fell.logp, fell.total):
        assert f"{abs(number):.4f}" in shown
    page.get_by_role("button", name="show it").click()
    assert chosen(page) == words(made, fell.rival)
    page.locator(f'[data-node="{fell.number}"]').click()
    page.get_by_role("button", name="Answer from here").click()
    until(page, "[...document.querySelectorAll('h2')].some(one => one.innerText === 'Answered without beams')")
    said = " ".join(made.prefix_labels(fell.number))
    assert page.get_by_text(re.compile(f"answers greedily: {re.escape(said)} ")).is_visible()
    page.get_by_role("button", name="Take the edits away").click()
    until(page, "document.querySelectorAll('[data-node]').length > 0")


def test_a_beginning_becomes_the_target_everywhere(page, made):
    kept = next(n for n in made.nodes if n.fate == "kept" and n.step == 2)
    page.locator(f'[data-node="{kept.number}"]').click()
    page.get_by_role("button", name="Use as given target").click()
    until(page, "document.querySelector('#given').value === 'given'")
    said = " ".join(made.prefix_labels(kept.number))
    until(page, f"[...document.querySelectorAll('input')].some(box => box.value === {json.dumps(said)})")
    until(page, "document.querySelectorAll('[data-node]').length > 0")
    assert page.locator("[data-node]").count() == len(made.nodes)  # the search is the same


def test_greedy_search_offers_beams_and_a_saved_page_has_its_tree(visit, ids, made, offline_page, tmp_path):
    seen = visit()
    page = seen.open(f"#/decode?m={ids['spelling']}&s={SOURCE}")
    assert page.get_by_role("heading", name=re.compile("^Greedy search")).is_visible()
    page.get_by_role("button", name="Search with 4 beginnings").click()
    until(page, f"document.querySelectorAll('[data-node]').length === {len(made.nodes)}")
    seen.wait_until_idle()
    saved = tmp_path / "saved.html"
    saved.write_bytes(download_export(page, "HTML|one file|One file"))
    offline_page.goto(saved.as_uri())
    until(offline_page, f"document.querySelectorAll('[data-node]').length === {len(made.nodes)}")
    assert offline_page.get_by_role("button", name="Answer from here").is_disabled()
