"""The Compare page: a reference, the current run, and their difference."""

import re
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe

import regard
from regard.trace import record
from tests.browser.conftest import until

SOURCE = "attention"
ABLATED = {"kind": "ablate", "attention": "dec.0.cross", "head": 1}
SAME = "document.body.innerText.includes('Both runs are the same')"
DIFFERENCE = "document.querySelector('[data-view=\"compare.difference\"]') !== null"


@pytest.fixture(scope="module")
def recorded():
    pipeline = regard.load("spelling")
    full = record(pipeline, SOURCE, search=pipeline.search(beam=1))
    return [full, record(pipeline, SOURCE, edits=[ABLATED])]


@pytest.fixture
def link(ids):
    reference = quote(f"#/compare?m={ids['spelling']}&s={SOURCE}", safe="")
    current = f"#/compare?m={ids['spelling']}&s={SOURCE}&e=ablate~dec.0.cross~1~zero&h=2"
    return f"{current}&ref={reference}&o.tensor=dec.1.cross.weights"


def run(page, which: str) -> list[str]:
    """The cells of a run in the table: model, source, output, log p, edits."""
    return page.locator(f'[data-run="{which}"] td').all_inner_texts()


def both_runs(page, column: int) -> list[str]:
    return [run(page, which)[column] for which in ("Reference", "Current")]


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_changed_text_is_compared_with_the_reference(visit, ids, recorded):
    page = visit().open(f"#/ablation?m={ids['spelling']}&s={SOURCE}")
    page.get_by_role("button", name="Compare").click()
    until(page, SAME)
    assert run(page, "Reference") == run(page, "Current")
    box = page.get_by_role("textbox").first
    box.fill("detention")
    box.press("Enter")
    until(page, "document.querySelector('[data-run=Current]').innerText.includes('detention')")
    assert run(page, "Reference")[1:3] == [SOURCE, recorded[0].answer.text]
    until(page, "location.hash.includes('ref=')")
    page.get_by_role("button", name="Return to the reference").click()
    until(page, SAME)
    assert run(page, "Current")[1] == SOURCE


def test_difference_is_that_of_the_tensors(visit, link, recorded):
    page = visit(width=390).open(link)
    until(page, DIFFERENCE)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()
    reference, current = (trace["dec.1.cross.weights"][2] for trace in recorded)
    difference = current - reference
    largest = float(difference.flatten()[int(difference.abs().argmax())])
    shown = page.locator("[data-largest]").inner_text()
    found = number(re.search(r"difference (\S+) at", shown)[1])
    assert found == pytest.approx(largest, abs=1e-4)
    view = page.locator('[data-view="compare.difference"]')
    view.get_by_role("button", name=re.compile("as a table")).click()
    cells = view.locator("tbody tr").nth(4).locator("td").all_inner_texts()
    assert [number(cell) for cell in cells] == pytest.approx(difference[4].tolist(), abs=1e-3)
    assert run(page, "Current")[4] == "head 1 of dec.0.cross set to zero"
    totals = [float(trace["out.total"]) for trace in recorded]
    assert [number(cell) for cell in both_runs(page, 3)] == pytest.approx(totals, abs=1e-3)


def test_two_models_are_compared_on_one_text(visit, link, ids):
    page = visit().open(link)
    until(page, "document.querySelector('[data-run=Reference]') !== null")
    page.locator("header select").first.select_option(ids["spelling-recurrent"])
    until(page, "document.querySelector('[data-run=Current]').innerText.includes('Bahdanau')")
    assert both_runs(page, 1) == [SOURCE, SOURCE]
    page.get_by_role("combobox", name="Show", exact=True).select_option("out.logprobs")
    until(page, DIFFERENCE)
    texts = [regard.load(name)(SOURCE).text for name in ("spelling", "spelling-recurrent")]
    assert both_runs(page, 2) == texts


def test_tensors_of_other_shapes_have_no_difference(visit, link, recorded):
    page = visit().open(link.replace(f"&s={SOURCE}&e", "&s=dog&e"))
    until(page, "document.querySelector('[data-view=\"compare.current\"]') !== null")
    until(page, "document.querySelector('[data-largest]').innerText.includes('Shapes differ')")
    assert page.locator('[data-view="compare.difference"]').count() == 0
    page = visit().open(link.replace("ablate~dec.0.cross~1~zero", "unpositioned"))
    page.get_by_role("button", name="Score it on the reference output").click()
    until(page, DIFFERENCE)
    assert both_runs(page, 2) == [recorded[0].answer.text] * 2


def test_reference_of_a_missing_model_is_reported(visit, ids):
    reference = quote("#/compare?m=gone@12345678", safe="")
    page = visit().open(f"#/compare?m={ids['spelling']}&s={SOURCE}&ref={reference}")
    assert page.get_by_text("uses a model that is not open here").is_visible()
    page.get_by_role("button", name="Set as reference").click()
    until(page, SAME)
