"""The training film under every page: slider, address, playing, comparing, markers, phone."""

import json
import re
import shutil
from urllib.request import urlopen

import pytest
from axe_playwright_python.sync_playwright import Axe

import regard
from regard.commands.film import reduce_film
from regard.trace import record
from regard.trace.film_probes import load_snapshot
from tests.browser.conftest import TIMEOUT, Visit, explorer, new_context, until
from tests.explore.films import STEPS, save_run
from tests.explore.helpers import SOURCE

SLIDER = "[data-film] input[type=range]"
POINT = "[data-point]"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp("films") / "run")


@pytest.fixture(scope="module")
def film_address(run):
    """An explorer of a run with snapshots, and of a bundle with a reduced film."""
    small = run.parent / "small"
    shutil.copytree(run / "bundle", small)
    reduce_film(run, [SOURCE], run.parent / "small.film.safetensors")
    with explorer(run, small) as found:
        yield found


@pytest.fixture(scope="module")
def film_ids(film_address):
    with urlopen(f"{film_address}/api/models", timeout=TIMEOUT) as response:
        return {model["name"]: model["id"] for model in json.load(response)["models"]}


@pytest.fixture
def open_page(browser, film_address, film_ids):
    """Open a page of the run: `open_page("heads", "c=8", width=390)`. No errors, no requests off
    this machine."""
    visits, contexts = [], []

    def start(page, query="", model="run", motion="reduce", **options):
        size = {"width": options.pop("width", 1280), "height": 900}
        context = new_context(browser, viewport=size, reduced_motion=motion, **options)
        contexts.append(context)
        visit = Visit(context.new_page(), film_address)
        visits.append(visit)
        visit.open(f"#/{page}?m={film_ids[model]}&s={SOURCE}&{query}")
        visit.page.locator("[data-film]").wait_for()
        return visit.page

    yield start
    for context in contexts:
        context.close()
    assert [url for visit in visits for url in visit.foreign_requests] == []
    assert [error for visit in visits for error in visit.console_errors] == []


def assert_at(page, text: str) -> None:
    """The film rests at a point, after some time."""
    until(page, f"document.querySelector('{POINT}').innerText.includes({text!r})")
    assert text in page.locator(POINT).inner_text()


def shown_weight(page, name: str) -> float:
    """The number of the first cell of a heat map, as its table says it."""
    page.locator(f'[data-heatmap][data-name="{name}"]').first.wait_for()
    text = page.locator(f'[data-heatmap][data-name="{name}"]').first.evaluate(
        "box => box.closest('[data-view]').innerText"
    )
    return float(re.findall(r": (−?[\d.e-]+)", text)[-1].replace("−", "-"))


def expected_weight(pipeline, target: str) -> float:
    trace = record(pipeline, SOURCE, target=target)
    return float(trace["dec.0.cross.weights"][0, 0, 0])


def test_the_slider_shows_the_snapshot(open_page, run):
    finished = regard.load(run / "bundle", device="cpu")
    target = finished(SOURCE, beam=1).text
    page = open_page("attention", "a=dec.0.cross")
    assert_at(page, "finished model")
    assert shown_weight(page, "dec.0.cross.weights") == pytest.approx(
        expected_weight(finished, target), abs=2e-4
    )
    page.locator(SLIDER).fill("4")  # the fifth snapshot
    assert_at(page, f"step {STEPS[4]} of {STEPS[-1]}")
    until(page, f"location.hash.includes('c={STEPS[4]}')")
    expected = expected_weight(load_snapshot(run, STEPS[4]), target)
    until(page, "document.querySelector('[aria-busy=true]') === null")
    assert shown_weight(page, "dec.0.cross.weights") == pytest.approx(expected, abs=2e-4)


def test_a_link_opens_the_same_point(open_page):
    page = open_page("heads", "c=8")
    assert_at(page, "step 8 of 64")
    # all frames are loaded then, so that the slider moves without the server
    until(page, f"document.querySelector('[data-film]').dataset.ready === '{len(STEPS)}'")
    assert page.locator(SLIDER).input_value() == str(STEPS.index(8))
    page.get_by_role("button", name="Finished model").click()
    assert_at(page, "finished model")
    until(page, "!location.hash.includes('c=')")


@pytest.mark.parametrize("name", ["start", "overview", "tokens", "embedding", "residual", "output"])
def test_the_slider_is_under_every_page(open_page, name):
    page = open_page(name)
    page.locator(SLIDER).fill("2")
    assert_at(page, f"step {STEPS[2]} of")


@pytest.mark.parametrize("name", ["heads", "alignment", "decode", "ablation", "compare"])
def test_the_slider_is_under_other_pages_too(open_page, name):
    page = open_page(name, "c=4")
    assert_at(page, "step 4 of")


def test_the_film_by_keyboard(open_page):
    page = open_page("alignment")
    page.locator(SLIDER).focus()
    page.keyboard.press("Home")
    assert_at(page, "step 0 of 64")
    page.keyboard.press("ArrowRight")
    assert_at(page, "step 1 of 64")
    value = page.locator(SLIDER).get_attribute("aria-valuetext")
    assert value == "step 1 of 64, loss 1.500"
    page.keyboard.press("End")
    assert_at(page, "finished model")
    page.locator("[data-play]").focus()
    page.keyboard.press("Enter")  # reduced motion: one snapshot for each press
    assert_at(page, "step 0 of 64")
    assert page.get_by_role("button", name="Next snapshot").is_visible()


def test_playing_runs_to_the_end_and_pauses(open_page):
    page = open_page("alignment", "c=0", motion="no-preference")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    assert_at(page, "finished model")
    page.get_by_role("button", name="Play").wait_for()


def test_two_points_are_compared(open_page):
    page = open_page("attention", "c=0")
    page.get_by_role("button", name="Compare points").click()
    assert_at(page, "finished model")
    until(page, "document.querySelector('[data-view=\"compare.difference\"]') !== null")
    cells = page.locator("[data-run] td:first-of-type").all_inner_texts()
    assert [("step 0" in cell) for cell in cells] == [True, False]
    page.locator(SLIDER).fill("3")
    assert_at(page, f"step {STEPS[3]} of")
    until(page, "document.querySelector('[data-run=Current]').innerText.includes('step 4')")
    until(page, "location.hash.includes('ref=') && location.hash.includes('c=4')")


def test_a_reduced_film_shows_its_texts(open_page):
    page = open_page("alignment", "c=8", model="small")
    assert_at(page, "step 8 of 64")
    page.locator('nav a[href*="embedding"], .map a:has-text("Embedding")').first.click()
    page.locator("[data-partial]").wait_for()
    page = open_page("alignment", model="small")
    box = page.get_by_role("textbox").first
    box.fill("nabob")
    box.press("Enter")
    page.locator("[data-film] .probes button").first.click()
    page.locator(SLIDER).wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_film_has_no_accessibility_violation(open_page, theme):
    page = open_page("heads", "c=8", color_scheme=theme)
    assert_at(page, "step 8 of 64")
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


@pytest.mark.parametrize("width", [320, 390])
def test_the_film_fits_a_phone(open_page, width):
    page = open_page("heads", "c=8", width=width)
    assert_at(page, "step 8 of 64")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator(SLIDER).bounding_box()
    assert box["height"] >= 40
    page.locator(SLIDER).click(position={"x": 12, "y": 20})
    assert_at(page, "step 0 of 64")
