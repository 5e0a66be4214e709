"""Markers of a training film: a film whose only event is known."""

import json
from urllib.request import urlopen

import pytest

from tests.browser.conftest import TIMEOUT, Visit, explorer, new_context, until
from tests.explore.films import RIGHT, STEPS, save_marked_run
from tests.explore.helpers import CARD, SOURCE

POINT = "document.querySelector('[data-point]').innerText"


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """The address of an explorer of the run, and the id of its model."""
    run = save_marked_run(tmp_path_factory.mktemp("films") / "marked")
    with explorer(run) as address, urlopen(f"{address}/api/models", timeout=TIMEOUT) as response:
        yield address, json.load(response)["models"][0]["id"]


def test_markers_lead_to_their_step(browser, marked):
    address, model = marked
    context = new_context(browser, reduced_motion="reduce")
    visit = Visit(context.new_page(), address)
    page = visit.open(f"#/heads?m={model}&s={SOURCE}")
    until(page, "document.querySelector('[data-film] summary').innerText === '1 marker'")
    page.locator("[data-film] summary").click()
    marker = page.locator("[data-film] li button")
    assert marker.count() == 1
    text = " ".join(marker.inner_text().split())
    assert text == f"the output for “{CARD['example']}” becomes right, step {RIGHT}"
    marker.click()
    until(page, f"{POINT}.includes('step {RIGHT} of {STEPS[-1]}')")
    until(page, f"location.hash.includes('c={RIGHT}')")
    assert visit.console_errors == []
    context.close()
