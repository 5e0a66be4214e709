"""A film that was reduced to some texts: its pages show only what it has, and nothing fails."""

import json
import shutil
from urllib.request import urlopen

import pytest

from regard.commands.film import reduce_film
from tests.browser.conftest import TIMEOUT, Visit, explorer, new_context, until
from tests.explore.films import save_run
from tests.explore.helpers import SETTINGS, SOURCE

EMPTY = """() => [...document.querySelectorAll("main section.card")]
  .filter(card => !card.querySelector("canvas, table, svg, [role=grid], [role=table], button"))
  .map(card => card.innerText)"""


@pytest.fixture(scope="module", params=SETTINGS)
def reduced(request, tmp_path_factory):
    """The address of an explorer of a bundle with a reduced film, and the id of its model."""
    run = save_run(tmp_path_factory.mktemp("films") / "run", request.param)
    shutil.copytree(run / "bundle", run.parent / "small")
    reduce_film(run, [SOURCE], run.parent / "small.film.safetensors")
    small = run.parent / "small"
    with explorer(small) as address, urlopen(f"{address}/api/models", timeout=TIMEOUT) as response:
        yield address, json.load(response)["models"][0]["id"]


@pytest.fixture
def visited(browser, reduced):
    address, model = reduced
    context = new_context(browser, reduced_motion="reduce")
    visit = Visit(context.new_page(), address)

    def open_page(name: str):
        return visit.open(f"#/{name}?m={model}&s={SOURCE}&c=8")

    yield open_page
    context.close()
    assert visit.console_errors == []


@pytest.mark.parametrize("name", ["overview", "tokens", "heads", "alignment", "compare"])
def test_pages_of_a_reduced_film_have_no_error(visited, name):
    page = visited(name)
    assert page.locator("main [role=alert]").count() == 0


def test_attention_of_a_reduced_film_has_no_empty_part(visited):
    page = visited("attention")
    until(page, "document.querySelector('main [data-heatmap]') !== null")
    assert page.evaluate(EMPTY) == []
    assert page.locator("main h2").all_inner_texts() == ["Weights", "Row inspector"]
    assert page.locator("main input[type=range]").count() == 0  # no temperature
    assert page.get_by_role("button", name="Edit this row").count() == 0
    page.locator("main [data-heatmap] [role=gridcell]").focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[data-drawer] [data-value]') !== null")


def test_output_of_a_reduced_film_explains_its_numbers(visited):
    page = visited("output")
    assert page.evaluate(EMPTY) == []
    assert "recurrent model has no" not in page.locator("main").inner_text()
    page.locator("main [data-cell='1,1']").click()
    until(page, "document.querySelector('[data-drawer] [data-value]') !== null")
    shown = float(page.locator("main [data-cell='1,2'] .number").inner_text().replace("−", "-"))
    value = float(page.locator("[data-drawer] [data-value]").get_attribute("data-value"))
    assert value == pytest.approx(shown, abs=1e-3)
    page.get_by_role("button", name="Explain perplexity").click()
    until(page, "document.querySelector('[data-drawer]').innerText.includes('2^entropy')")
    bits = float(page.locator("[data-drawer] [data-operand]").get_attribute("data-operand"))
    result = float(page.locator("[data-drawer] [data-result]").get_attribute("data-result"))
    assert result == pytest.approx(2**bits, rel=1e-9)
