"""Every page and lesson in a browser: no violations in both themes, at every width and zoom."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import until
from tests.browser.lesson_pages import IDS, open_lesson

PAGES = [
    "start",
    "overview",
    "tokens",
    "embedding",
    "attention",
    "heads",
    "alignment",
    "residual",
    "output",
    "decode",
    "ablation",
    "compare",
    "lessons",
]
SCREENS = [("spelling", 1280), ("spelling-recurrent", 390)]
WIDE = "document.documentElement.scrollWidth > window.innerWidth"
MOVING = "document.getAnimations().filter((one) => one.effect.getTiming().duration > 1).length"
THEME = "document.documentElement.dataset.theme"
TRIES = 5
NARROW = {"width": 320, "height": 640}
ZOOMED = {"width": 640, "height": 450}  # CSS pixels of a window of 1280 × 900 at 200 %


def violations(page: Any, **options: Any) -> str:
    """What axe reports, or nothing. A picture may still have the colours of the other theme, so
    only what stays is reported."""
    for _ in range(TRIES):
        found = Axe().run(page, options={"resultTypes": ["violations"], **options})
        if not found.violations_count:
            return ""
        page.wait_for_timeout(1000)
    return found.generate_report()


def assert_accessible(page: Any) -> None:
    """No violations in either theme, no sideways scrolling and nothing that moves."""
    size = page.viewport_size
    assert violations(page) == ""
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    until(page, f"{THEME} === 'dark'")
    # The same elements in other colours.
    assert violations(page, runOnly=["color-contrast"]) == ""
    assert page.evaluate(MOVING) == 0
    for other in (ZOOMED, NARROW):
        page.set_viewport_size(other)
        until(page, f"window.innerWidth === {other['width']}")
        assert page.locator("h1").first.is_visible()
        until(page, f"!({WIDE})")
    page.set_viewport_size(size)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    until(page, f"{THEME} !== 'dark' && !({WIDE})")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("model", "width"), SCREENS)
def test_page_has_no_accessibility_violations(visit, ids, name, model, width):
    page = visit(width=width).open(f"#/{name}?m={ids[model]}&s=attention")
    assert page.locator("h1").first.is_visible()
    assert not page.evaluate(WIDE), "the page scrolls sideways"
    assert_accessible(page)


@pytest.mark.parametrize("number", IDS)
def test_a_lesson_has_no_accessibility_violations(visit, number):
    page = open_lesson(visit(), number, step=3)
    for step in range(4):
        page.locator("ol.steps button").nth(step).click()
        until(page, f"document.querySelector('[data-lesson]').dataset.step === '{step}'")
        assert_accessible(page)
