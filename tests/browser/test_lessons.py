"""All lessons: by keyboard alone, accessible in both themes, on a phone, with kept progress."""

import json

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import until
from tests.browser.lesson_pages import IDS, open_lesson

PROGRESS = "JSON.parse(localStorage.getItem('regard.lessons') ?? '{}')"
FITS = "document.documentElement.scrollWidth <= window.innerWidth"


def press_until_focused(page, name: str) -> None:
    """Press Tab until the button with this name has the focus."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText?.trim()") == name:
            return
    raise AssertionError(f"{name!r} cannot be reached by keyboard")


@pytest.mark.parametrize("number", IDS)
def test_a_lesson_is_completed_by_keyboard_alone(visit, number):
    page = open_lesson(visit(), number)
    assert page.get_by_role("button", name="Continue").is_disabled()
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.type") == "radio":
            break
    page.keyboard.press("Space")
    for name in ("Continue", "Skip this", "Continue", "Finish the lesson"):
        press_until_focused(page, name)
        page.keyboard.press("Enter")
    until(page, f"{PROGRESS}.{IDS[number]}.finished === true")
    visible = page.locator("[data-python] summary")
    assert visible.is_visible()
    assert page.locator("[data-page]").get_attribute("href").startswith("#/")


@pytest.mark.parametrize("number", IDS)
@pytest.mark.parametrize(("theme", "width", "step"), [("light", 1280, 2), ("dark", 390, 1)])
def test_a_lesson_has_no_accessibility_violations(visit, number, theme, width, step):
    page = open_lesson(visit(theme=theme, width=width), number, step=step)
    assert page.evaluate(FITS), "the page scrolls sideways"
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()
    if width == 390:
        page.set_viewport_size({"width": 320, "height": 800})
        until(page, FITS)


def test_progress_is_kept_in_the_browser_only(visit):
    sent = []
    start = visit()
    page = open_lesson(start, "1")
    page.on("request", lambda request: sent.append(request.url))
    page.get_by_role("radio").nth(2).check()
    page.get_by_role("button", name="Continue").click()
    assert page.evaluate(PROGRESS)["pooling"] == {
        "step": 1,
        "guess": 2,
        "tasks": [],
        "finished": False,
    }
    assert sent == []
    page.reload()
    start.wait_until_idle()
    until(page, "document.querySelector('[data-lesson]')?.dataset.step === '1'")


def test_the_list_shows_progress_and_opens_lessons(visit):
    start = visit()
    stored = json.dumps(
        json.dumps({"bank": {"step": 3, "guess": 1, "tasks": [], "finished": True}})
    )
    start.page.context.add_init_script(
        f"try {{ localStorage.setItem('regard.lessons', {stored}) }} catch {{}}"
    )
    page = start.open("#/lessons")
    until(page, "document.querySelector('[data-finished]') !== null")
    assert page.locator("[data-finished]").inner_text() == f"1 of {len(IDS)} finished"
    assert Axe().run(page, options={"resultTypes": ["violations"]}).violations_count == 0
    page.get_by_role("link", name="King and queen").click()
    until(page, "document.querySelector('[data-lesson=king]') !== null")


def test_lessons_are_loaded_on_demand(visit):
    start = visit()
    requested = []
    start.page.on("request", lambda request: requested.append(request.url.rsplit("/", 1)[-1]))
    page = start.open("#/start")
    assert "lessons.js" not in requested
    page.locator("main").get_by_role("link", name="Pooling as regression").click()
    until(page, "document.querySelector('[data-lesson=pooling]') !== null")
    assert "lessons.js" in requested
