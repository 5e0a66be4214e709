"""All lessons: the list, progress that stays in the browser, loaded on demand."""

import json

from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import until
from tests.browser.lesson_pages import IDS, open_lesson

PROGRESS = "JSON.parse(localStorage.getItem('regard.lessons') ?? '{}')"


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
