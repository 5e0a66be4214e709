"""Two states compared: kept by a button, changed in the header, told apart number by number, in one link."""

import re
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe

import regard
from regard.trace import record
from tests.browser.conftest import until

SOURCE = "attention"
CUT = {"kind": "knock-out", "attention": "dec.0.cross", "head": 1}


@pytest.fixture(scope="module")
def pipeline():
    return regard.load("spelling")


@pytest.fixture(scope="module")
def recorded(pipeline):
    return [record(pipeline, SOURCE, search=pipeline.search(beam=1)), record(pipeline, SOURCE, edits=[CUT])]


@pytest.fixture
def link(ids):
    kept = quote(f"#/compare?m={ids['spelling']}&s={SOURCE}", safe="")
    shown = f"#/compare?m={ids['spelling']}&s={SOURCE}&e=cut~dec.0.cross~1~zero&h=2"
    return f"{shown}&with={kept}&o.tensor=dec.1.cross.weights"


def state(page, which: str) -> list[str]:
    return page.locator(f'[data-state="{which}"] td').all_inner_texts()


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_what_is_shown_is_kept_and_what_comes_is_compared_with_it(visit, ids, recorded):
    seen = visit()
    page = seen.open(f"#/knockout?m={ids['spelling']}&s={SOURCE}")
    page.get_by_role("button", name="Compare").click()
    until(page, "document.body.innerText.includes('Nothing differs yet')")
    assert state(page, "Kept") == state(page, "Now")
    box = page.get_by_role("textbox").first
    box.fill("detention")
    box.press("Enter")
    until(page, "document.querySelector('[data-state=Now]').innerText.includes('detention')")
    assert state(page, "Kept")[1:3] == [SOURCE, recorded[0].answer.text]
    until(page, "location.hash.includes('with=')")
    page.get_by_role("button", name="Go back to what was kept").click()
    until(page, "document.body.innerText.includes('Nothing differs yet')")
    assert state(page, "Now")[1] == SOURCE


def test_the_difference_is_that_of_the_numbers(visit, link, recorded):
    page = visit(width=390).open(link)
    until(page, "document.querySelector('[data-view=\"compare.difference\"]') !== null")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()
    one, other = (trace["dec.1.cross.weights"][2] for trace in recorded)
    difference = other - one
    place = int(difference.abs().argmax())
    shown = page.locator("[data-most]").inner_text()
    assert number(re.search(r"difference (\S+) at", shown)[1]) == pytest.approx(
        float(difference.flatten()[place]), abs=1e-4
    )
    view = page.locator('[data-view="compare.difference"]')
    view.get_by_role("button", name=re.compile("as a table")).click()
    cells = view.locator("tbody tr").nth(4).locator("td").all_inner_texts()
    assert [number(cell) for cell in cells] == pytest.approx(difference[4].tolist(), abs=1e-3)
    assert state(page, "Now")[4] == "head 1 of dec.0.cross set to zero"
    assert [number(state(page, which)[3]) for which in ("Kept", "Now")] == pytest.approx(
        [float(trace["out.total"]) for trace in recorded], abs=1e-3
    )


def test_two_models_are_compared_on_one_text(visit, link, ids):
    page = visit().open(link)
    until(page, "document.querySelector('[data-state=Kept]') !== null")
    page.locator("header select").first.select_option(ids["spelling-recurrent"])
    until(page, "document.querySelector('[data-state=Now]').innerText.includes('Bahdanau')")
    assert [state(page, which)[1] for which in ("Kept", "Now")] == [SOURCE, SOURCE]
    page.get_by_label("Tensor").select_option("out.logprobs")
    until(page, "document.querySelector('[data-view=\"compare.difference\"]') !== null")
    texts = [regard.load(name)(SOURCE).text for name in ("spelling", "spelling-recurrent")]
    assert [state(page, which)[2] for which in ("Kept", "Now")] == texts


def test_texts_of_other_lengths_are_shown_without_a_difference(visit, link, recorded):
    page = visit().open(link.replace(f"&s={SOURCE}&e", "&s=dog&e"))
    until(page, "document.querySelector('[data-view=\"compare.now\"]') !== null")
    until(page, "document.querySelector('[data-most]').innerText.includes('no difference cell by cell')")
    assert page.locator('[data-view="compare.difference"]').count() == 0
    page = visit().open(link.replace("cut~dec.0.cross~1~zero", "unpositioned"))  # which says another text
    page.get_by_role("button", name="Hold it to the kept answer").click()
    until(page, "document.querySelector('[data-view=\"compare.difference\"]') !== null")
    assert [state(page, which)[2] for which in ("Kept", "Now")] == [recorded[0].answer.text] * 2


def test_what_was_kept_of_a_model_that_is_not_here(visit, ids):
    page = visit().open(f"#/compare?m={ids['spelling']}&s={SOURCE}&with={quote('#/compare?m=gone@12345678', safe='')}")
    assert page.get_by_text("a model that is not open here").is_visible()
    page.get_by_role("button", name="Keep this").click()
    until(page, "document.body.innerText.includes('Nothing differs yet')")
