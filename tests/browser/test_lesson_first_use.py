"""What a first-time user stumbled over in the lessons."""

import re

import pytest

from tests.browser.conftest import until
from tests.browser.lesson_pages import is_done, open_lesson, set_slider


@pytest.mark.parametrize(
    ("number", "model", "source"),
    [
        ("6", "spelling", "tea"),
        ("8", "spelling-recurrent", "knight"),
        ("9", "spelling", "chef"),
        ("10", "spelling", "knight"),
        ("A", "spelling", "emit"),
    ],
)
def test_the_link_opens_the_model_of_the_lesson(visit, ids, number, model, source):
    visited = visit()
    page = open_lesson(visited, number, step=3)
    page.locator("[data-page]").click()
    visited.wait_until_idle()
    assert page.locator("header select").first.input_value() == ids[model]
    assert page.get_by_label("Source").first.input_value() == source


def test_tasks_are_ticked_in_view_on_a_phone(visit):
    page = open_lesson(visit(width=390, height=844), "A", step=1)
    slider = page.locator("[data-slider=beam]")
    slider.scroll_into_view_if_needed()
    set_slider(page, "beam", 3)
    until(page, "document.querySelector('[data-progress]').innerText.includes('1 of 2 done')")
    box = page.locator("[data-progress]").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 844
    set_slider(page, "beam", 1)
    page.get_by_role("button", name="See the result").click()
    assert page.locator("[data-step='2']").count() == 1


def test_the_second_task_of_king_needs_its_own_move(visit):
    page = open_lesson(visit(), "2", step=1)
    page.get_by_role("slider", name="The word queen").focus()
    while not is_done(page, 0):
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowLeft")
    assert not is_done(page, 1)
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    assert is_done(page, 1)
    assert page.locator("[data-found=excluded]").get_attribute("data-word") == "queen"


@pytest.mark.parametrize(("number", "handles"), [("1", True), ("5", False), ("8", False)])
def test_the_hint_about_dots_appears_where_they_are(visit, number, handles):
    page = open_lesson(visit(), number, step=1)
    assert (page.get_by_text("Drag the dots").count() == 1) == handles
    assert (page.locator("svg [role=slider]").count() > 0) == handles


def test_a_lesson_does_not_show_another_model(visit):
    page = open_lesson(visit(), "9", step=1)
    assert page.locator("header select").count() == 0
    assert page.locator("[data-check]").count() == 0
    page.get_by_role("button", name=re.compile("^Export")).click()
    assert page.get_by_role("menuitem", name="All tensors").count() == 0


@pytest.mark.parametrize("number", ["5", "10"])
def test_no_number_is_a_negative_zero(visit, number):
    page = open_lesson(visit(), number, step=1)
    if number == "10":
        page.locator("button.letter").first.click()
    assert not re.search(r"−0(\.0+)?(?![.\d])", page.locator("[data-figure]").inner_text())
