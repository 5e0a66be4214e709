"""The first minutes: the live start page, examples of the bundle, and what a model can read."""

import json

import pytest

import regard
from regard.trace import alignment_matrix, record
from tests.browser.conftest import TIMEOUT, explorer, until, wait_until_idle
from tests.explore.helpers import save_bundle

TOKENS = "[...document.querySelectorAll('[data-live] button')].map(one => one.innerText)"
WARNINGS = "document.querySelector('[data-warnings]').innerText"
PAGES = ["start", "overview", "tokens", "heads", "decode", "compare"]


def output_tokens(text: str) -> list[str]:
    pipeline = regard.load("spelling")
    return [*record(pipeline, text, search=pipeline.search(beam=1)).answer.tokens, "■"]


def shows(text: str) -> str:
    """The condition that the picture shows the output for a text."""
    tokens = json.dumps(output_tokens(text), ensure_ascii=False)
    return f"JSON.stringify({TOKENS}) === JSON.stringify({tokens})"


def test_picture_follows_the_typed_text(visit, ids):
    page = visit().open(f"#/start?m={ids['spelling']}")
    box = page.get_by_role("textbox").first
    box.click()
    box.fill("")
    box.press_sequentially("table", delay=40)  # Run is not pressed
    until(page, shows("table"))
    assert page.evaluate("location.hash").startswith("#/start")
    box.press_sequentially("t")
    until(page, shows("tablet"))
    assert box.input_value() == "tablet"


def test_page_opens_on_the_translation_model(visit, pipelines):
    page = visit().open("")
    until(page, f"{TOKENS}.length > 0")
    source = page.get_by_role("textbox").first.input_value()
    assert source == "I have never seen her before."
    search = pipelines["english-german"].search(beam=1)
    found = record(pipelines["english-german"], source, search=search).answer.tokens
    shown = page.evaluate(TOKENS)
    assert "".join(shown).strip("■").replace("␣", " ").split() == "".join(found).split()


def test_picture_shows_the_largest_weights(visit, ids, pipelines):
    page = visit().open(f"#/start?m={ids['spelling']}&s=attention&r=2")
    until(page, "document.querySelector('[data-strongest]') !== null")
    pipeline = pipelines["spelling"]
    trace = record(pipeline, "attention", search=pipeline.search(beam=1))
    weights = alignment_matrix(trace)[2]
    labels = [*"attention", "■"]
    best = weights.argsort(descending=True)[:3].tolist()
    shown = ", ".join(f"{labels[at]} {weights[at]:.2f}" for at in best)
    text = f"“{trace.following[2].text}” attends to {shown}"
    assert page.locator("[data-strongest]").inner_text() == text
    chip = page.locator("[data-live] button").nth(2)
    assert chip.get_attribute("aria-label") == text
    chip.focus()
    page.keyboard.press("ArrowRight")
    until(page, "location.hash.includes('r=3')")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_warns_of_unknown_symbols(visit, ids, name):
    page = visit(width=390).open(f"#/{name}?m={ids['spelling']}&s=caf%C3%A9%20ol%C3%A9")
    shown = page.evaluate(WARNINGS)
    assert "“é”, “␣”" in shown
    assert "It knows: ' a–z" in shown
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_wrong_case_is_changed_and_reported(visit, ids):
    page = visit().open(f"#/tokens?m={ids['spelling']}&s=attention")
    assert page.evaluate(WARNINGS) == ""
    box = page.get_by_role("textbox").first
    box.fill("O’CLOCK")
    box.press("Enter")
    until(page, f"{WARNINGS} !== ''")
    wait_until_idle(page)
    assert "“O’CLOCK” was changed to “o'clock”" in page.evaluate(WARNINGS)
    assert box.input_value() == "o'clock"
    until(page, "location.hash.includes('s=o%27clock') || location.hash.includes(\"s=o'clock\")")
    tokens = output_tokens("o'clock")[:-1]
    assert page.get_by_role("status", name="Output").inner_text() == " ".join(tokens)


def test_bundle_opens_on_its_examples(browser, tmp_path):
    examples = ["zebra", "nabob", "aba"]
    folder = save_bundle(tmp_path / "mine", card={"examples": examples})
    plain = save_bundle(tmp_path / "plain", card={})
    with explorer(folder, plain) as address, browser.new_page() as page:
        page.set_default_timeout(1000 * TIMEOUT)
        page.goto(f"{address}/")
        until(page, f"{TOKENS}.length > 0")
        box = page.get_by_role("textbox").first
        assert box.input_value() == examples[0]
        assert page.locator("[data-example]").all_inner_texts() == examples
        page.locator("[data-example]").nth(1).click()
        until(page, "document.querySelector('[data-live] span')?.innerText === 'n'")
        assert box.input_value() == examples[1]
        page.locator("header select").first.select_option(index=1)
        until(page, "!document.querySelector('header output').innerText.includes('Running')")
        text = page.get_by_role("textbox").first.input_value()
        assert text
        assert set(text) <= set("abdenorz")  # the alphabet of its vocabulary
