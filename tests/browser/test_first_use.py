"""What a first-time user stumbled over, on the pages of the explorer."""

import pytest

from tests.browser.conftest import download_export, until

WARNINGS = "document.querySelector('[data-warnings]').innerText"


def enter(page, text: str) -> None:
    """Type a source and run it."""
    page.get_by_label("Source").first.fill(text)
    page.get_by_role("button", name="Run", exact=True).click()


def shown_output(page) -> str:
    """The text in the header's output field."""
    return page.locator("header output").first.inner_text()


def test_symbols_read_as_bytes_are_reported(visit, ids):
    visited = visit()
    page = visited.open(f"#/attention?m={ids['english-german']}")
    enter(page, "Der 日本 Zug 🚆")
    until(page, f"{WARNINGS} !== ''")
    assert "byte by byte: “日”, “本”, “🚆”." in page.evaluate(WARNINGS)
    enter(page, "She is here.")
    until(page, f"{WARNINGS} === ''")


def test_words_read_letter_by_letter_are_reported(visit, ids):
    page = visit().open(f"#/attention?m={ids['english-german']}")
    enter(page, "HELLO my friend")
    until(page, f"{WARNINGS}.includes('letter by letter')")
    assert "“HELLO”" in page.evaluate(WARNINGS)
    assert "friend" not in page.evaluate(WARNINGS)
    page = visit().open(f"#/attention?m={ids['spelling']}&s=hello")  # reads letters only
    assert page.evaluate(WARNINGS) == ""


def test_output_of_an_older_text_is_not_shown(visit, ids):
    page = visit().open(f"#/attention?m={ids['english-german']}&s=I+am+here.")
    before = shown_output(page)
    page.get_by_label("Source").first.fill("I am not here.")
    until(page, "document.querySelector('header output').innerText === 'Press Run'")
    page.get_by_label("Source").first.fill("I am here.")
    until(page, "document.querySelector('header output').innerText !== 'Press Run'")
    assert shown_output(page) == before


def test_sharing_works_without_a_clipboard(visit, ids):
    visited = visit(width=390, height=844)
    visited.page.add_init_script(
        "delete Navigator.prototype.clipboard;"
        "document.addEventListener('copy', () => { window.copied = String(getSelection()) ||"
        " document.activeElement.value })"
    )
    page = visited.open(f"#/tokens?m={ids['spelling']}&s=hello")
    page.get_by_role("button", name="Share").click()
    page.get_by_text("Link copied.").first.wait_for()
    assert page.locator(".notice").is_visible()
    assert page.evaluate("window.copied") == page.url


def test_short_pages_start_below_the_header(visit, ids):
    page = visit(width=800, height=1900).open(f"#/heads?m={ids['spelling-recurrent']}")
    header = page.locator("header").first.bounding_box()
    title = page.locator("h1").bounding_box()
    assert 0 < title["y"] - (header["y"] + header["height"]) < 60


def test_runs_fit_a_phone_without_scrolling(visit, ids):
    page = visit(width=390, height=844).open(f"#/compare?m={ids['english-german']}")
    until(page, "document.querySelectorAll('tr[data-run]').length === 2")
    assert page.evaluate(
        "[...document.querySelectorAll('tr[data-run] td')].every((cell) => {"
        " const box = cell.getBoundingClientRect(); return box.left >= 0 && box.right <= 390 })"
    )


def test_outputs_of_other_lengths_have_a_reason(visit, ids):
    page = visit().open(f"#/compare?m={ids['english-german']}&s=I+have+never+seen+her+before.")
    until(page, "document.querySelectorAll('[data-heatmap]').length >= 2")
    rows = page.locator("[data-heatmap]").evaluate_all("all => all.map(one => one.dataset.rows)")
    note = page.locator("[data-largest]").inner_text()
    assert f"the outputs have {rows[0]} and {rows[1]} tokens" in note


@pytest.fixture(scope="module")
def saved(browser, address, tmp_path_factory):
    """A saved page as a file."""
    from tests.browser.conftest import Visit, new_context

    context = new_context(browser, accept_downloads=True)
    page = Visit(context.new_page(), address).open("#/tokens?s=Seriously%3F")
    content = download_export(page, "offline page")
    context.close()
    path = tmp_path_factory.mktemp("saved") / "page.html"
    path.write_bytes(content)
    return path


def test_a_saved_page_says_what_it_cannot_do(saved, offline_page):
    offline_page.goto(saved.as_uri())
    until(offline_page, f"{WARNINGS}.includes('Saved page')")
    offline_page.goto(f"{saved.as_uri()}#/start")
    until(offline_page, "document.querySelector('h1').innerText.startsWith('Look inside')")
    assert "Type another source text" not in offline_page.inner_text("main")


def test_saved_files_have_one_dot(visit, ids):
    page = visit().open(f"#/tokens?m={ids['english-german']}&s=Seriously.")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Trace (JSON)").click()
    assert download.value.suggested_filename == "regard-Seriously.json"
