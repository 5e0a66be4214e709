"""Opens lessons at a step and reads the numbers in their figures."""

import json
import runpy
from pathlib import Path
from typing import Any

from tests.browser.conftest import until

LESSONS = Path(__file__).parents[2] / "explorer" / "src" / "lessons"
IDS = {
    "1": "pooling",
    "2": "king",
    "3": "bank",
    "4": "spaces",
    "5": "scaling",
    "6": "order",
    "7": "positions",
    "8": "bottleneck",
    "9": "masks",
    "10": "explanation",
    "A": "beam",
}
STORE = "try {{ localStorage.setItem('regard.lessons', {0}) }} catch {{}}"  # about:blank has none


def open_lesson(visit: Any, number: str, step: int = 0, guess: int = 0) -> Any:
    """A lesson at a step: as if the reader had come that far, with this guess."""
    if step:
        reached = {"step": step, "guess": guess, "tasks": [], "finished": False}
        stored = json.dumps(json.dumps({IDS[number]: reached}))
        visit.page.context.add_init_script(STORE.format(stored))
    page = visit.open(f"#/lessons?o.lesson={number}")
    until(page, f"document.querySelector('[data-lesson={IDS[number]}]') !== null")
    visit.wait_until_idle()
    return page


def numbers(page: Any, selector: str, attribute: str) -> list[float]:
    """The numbers in an attribute of all matching elements."""
    found = page.locator(selector).evaluate_all(
        "(all, name) => all.map((one) => Number(one.getAttribute(name)))", attribute
    )
    assert found, f"nothing matches {selector}"
    return found


def attribute(page: Any, name: str) -> Any:
    """An attribute of the lesson's figure as a value."""
    return json.loads(page.locator("[data-figure]").first.get_attribute(name))


def is_done(page: Any, task: int) -> bool:
    """Whether a task is ticked."""
    return "done" in (page.locator(f"[data-task='{task}']").get_attribute("class") or "")


def set_slider(page: Any, name: str, value: float) -> None:
    """Move a range input, as the reader does."""
    page.locator(f"[data-slider='{name}']").evaluate(
        "(one, value) => { one.value = value;"
        " one.dispatchEvent(new Event('input', { bubbles: true })) }",
        value,
    )


def python_of(lesson: str) -> dict[str, Any]:
    """The names that the lesson's Python code defines."""
    return runpy.run_path(str(LESSONS / "python" / f"{lesson}.py"))
