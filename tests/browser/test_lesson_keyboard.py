"""Each lesson is completed by keyboard alone, its tasks included: Tab, arrows, Space and Enter."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import until, wait_for
from tests.browser.lesson_pages import IDS, is_done, open_lesson, python_of

PROGRESS = "JSON.parse(localStorage.getItem('regard.lessons') ?? '{}')"
STOPS = 200  # more tab stops than any lesson has
PRESSES = 400  # more steps than any slider has


class Keyboard:
    """A reader of a lesson without a pointer."""

    def __init__(self, page: Any) -> None:
        self.page, self.press = page, page.keyboard.press

    def tab_to(self, selector: str, text: str = "") -> None:
        """Press Tab until an element has the focus that matches, with this text or label."""
        found = """([selector, text]) => {
          const one = document.activeElement;
          const said = one.getAttribute('aria-label') ?? one.innerText?.trim() ?? '';
          return one.matches(selector) && (!text || said === text);
        }"""
        for _ in range(STOPS):
            self.press("Tab")
            if self.page.evaluate(found, [selector, text]):
                return
        raise AssertionError(f"{selector} {text!r} cannot be reached by keyboard")

    def push(self, text: str) -> None:
        """Press a button."""
        self.tab_to("button", text)
        self.press("Enter")

    def repeat(self, key: str, task: int) -> None:
        """Press a key until a task is ticked."""
        for _ in range(PRESSES):
            if is_done(self.page, task):
                return
            self.press(key)
        raise AssertionError(f"{key} does not accomplish task {task}")

    def choose(self, count: int, key: str = "ArrowRight") -> None:
        """Move within a group of options, which has the focus."""
        for _ in range(count):
            self.press(key)


def pool(reader: Keyboard) -> None:
    reader.tab_to("[role=slider]", "Query")
    reader.press("ArrowLeft")
    reader.tab_to("[data-slider=bandwidth]")
    reader.repeat("ArrowRight", 0)
    reader.repeat("ArrowLeft", 1)
    reader.tab_to("[role=slider]:not([aria-label=Query])")
    reader.press("ArrowUp")


def move_queen(reader: Keyboard) -> None:
    reader.tab_to("[role=slider]", "The word queen")
    for _ in range(12):
        reader.press("Shift+ArrowLeft")
        reader.press("Shift+ArrowDown")


def turn_bank(reader: Keyboard) -> None:
    reader.tab_to("[role=slider]", "The word river")
    reader.press("ArrowUp")
    reader.tab_to("[data-slider=angle]")
    reader.repeat("ArrowRight", 1)


def turn_spaces(reader: Keyboard) -> None:
    reader.tab_to("[data-slider=turn0]")
    reader.repeat("ArrowRight", 0)
    reader.tab_to("[data-slider=turn2]")
    reader.press("ArrowRight")


def widen_vectors(reader: Keyboard) -> None:
    reader.tab_to("[data-slider=width]")
    reader.press("End")
    reader.press("Home")


def move_words(reader: Keyboard) -> None:
    reader.push("Move man to the right")
    reader.tab_to("[data-figure] fieldset:nth-of-type(2) input")
    reader.choose(1)


def look_at_encodings(reader: Keyboard) -> None:
    reader.tab_to("[data-figure] input[type=radio]")
    reader.choose(4)
    reader.tab_to("[data-slider=length]")
    reader.press("Home")
    reader.repeat("ArrowRight", 1)
    reader.repeat("ArrowRight", 2)


def point_attention(reader: Keyboard) -> None:
    reader.tab_to("[data-slider=length]")
    reader.press("End")
    reader.tab_to("button", "All weight on k")
    reader.press("Enter")
    wait_for(reader.page, lambda: is_done(reader.page, 1), "the model says K")
    reader.tab_to("[data-figure] input[type=radio]")
    reader.choose(1, "ArrowLeft")  # from the first sound to the last
    reader.push("All weight on n")
    wait_for(reader.page, lambda: is_done(reader.page, 2), "the model starts again")


def colour_mask(reader: Keyboard) -> None:
    code = python_of("masks")
    for at, allowed in enumerate(code["allowed"].flatten().tolist()):
        if allowed:
            reader.tab_to(f"[data-cell='{at}']")
            reader.press("Space")
    reader.tab_to(f"[data-head='{code['name']}.{code['head']}']")
    reader.press("Enter")
    reader.push("3. Remove this head")


def guess_letters(reader: Keyboard) -> None:
    words, sounds = (f"[data-figure] .choice:nth-of-type({k}) input" for k in (1, 2))
    for _ in range(reader.page.locator(words).count()):
        for _ in range(reader.page.locator(sounds).count()):
            reader.tab_to("button[data-weight]")
            reader.press("Enter")
            if is_done(reader.page, 0) and is_done(reader.page, 1):
                return
            reader.tab_to(sounds)
            reader.choose(1)
        reader.tab_to(words)
        reader.choose(1)


def widen_beam(reader: Keyboard) -> None:
    reader.tab_to("[data-slider=beam]")
    reader.press("End")
    reader.repeat("ArrowLeft", 1)


TASKS: dict[str, Callable[[Keyboard], None]] = {
    "1": pool,
    "2": move_queen,
    "3": turn_bank,
    "4": turn_spaces,
    "5": widen_vectors,
    "6": move_words,
    "7": look_at_encodings,
    "8": point_attention,
    "9": colour_mask,
    "10": guess_letters,
    "A": widen_beam,
}


@pytest.mark.parametrize("number", IDS)
def test_a_lesson_is_completed_by_keyboard_alone(visit, number):
    page = open_lesson(visit(), number)
    reader = Keyboard(page)
    assert page.get_by_role("button", name="Continue").is_disabled()
    reader.tab_to("input[type=radio]")
    reader.press("Space")
    reader.push("Continue")
    until(page, "document.querySelector('[data-lesson]').dataset.step === '1'")
    TASKS[number](reader)
    tasks = page.locator("[data-task]").count()
    done = [task for task in range(tasks) if is_done(page, task)]
    assert done == list(range(tasks))
    for name in ("Continue", "Continue", "Finish the lesson"):  # not "Skip this"
        reader.push(name)
    until(page, f"{PROGRESS}.{IDS[number]}.finished === true")
    assert page.locator("[data-python] summary").is_visible()
    assert page.locator("[data-page]").get_attribute("href").startswith("#/")
