"""Position encodings side by side on the Compare page."""

import numpy as np
import pytest

from tests.browser.conftest import until
from tests.browser.drawers import drawer

SOURCE = "attention"
PANELS = "document.querySelectorAll('[data-encoding] [data-heatmap]').length"
NAMES = ["sinusoidal", "learned", "distance", "t5", "rotary", "alibi"]


def open_cell(page, name: str, i: int, j: int) -> None:
    """Explain the number of query i and key j by keyboard."""
    page.locator(f"[data-heatmap='positions.{name}'] [role=gridcell]").focus()
    for key in ["Control+Home", *["ArrowDown"] * i, *["ArrowRight"] * j, "Enter"]:
        page.keyboard.press(key)


@pytest.fixture
def page(visit, ids):
    opened = visit().open(f"#/compare?m={ids['spelling']}&s={SOURCE}&o.mode=positions")
    until(opened, f"{PANELS} === {len(NAMES)}")
    return opened


def test_all_encodings_are_shown_and_the_models_own_is_named(page):
    names = page.locator("[data-encoding]").evaluate_all("all => all.map(x => x.dataset.encoding)")
    assert names == NAMES
    own = page.locator("[data-own=true]")
    assert own.count() == 1
    assert own.get_attribute("data-encoding") == "rotary"
    assert "used by this model" in own.inner_text()


def test_scores_open_their_arithmetic(page):
    width, heads = 128, 4
    dims = np.arange(width)
    angles = np.arange(10)[:, None] / 10000 ** (2 * (dims // 2) / width)
    table = np.where(dims % 2, np.cos(angles), np.sin(angles))
    open_cell(page, "sinusoidal", 4, 2)
    value, result, sizes = drawer(page)
    assert result == pytest.approx(table[4] @ table[2] / np.sqrt(width), abs=1e-5)
    assert value == pytest.approx(result, abs=1e-5)
    assert sizes == pytest.approx((table[4] * table[2]).tolist(), abs=1e-6)
    page.keyboard.press("Escape")
    open_cell(page, "alibi", 5, 1)
    assert drawer(page)[:2] == (-(2 ** (-8 / heads)) * 4,) * 2
    page.keyboard.press("Escape")
    open_cell(page, "rotary", 3, 1)
    dim = width // heads
    frequencies = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    expected = 2 * np.cos(2 * frequencies).sum() / np.sqrt(dim)
    assert drawer(page)[:2] == (pytest.approx(expected, abs=1e-4),) * 2
    page.keyboard.press("Escape")
    open_cell(page, "distance", 3, 1)
    assert drawer(page)[:2] == (-2, -2)


def test_values_open_their_arithmetic(page):
    page.get_by_role("radio", name="Values at each position").click()
    until(page, f"{PANELS} === 3")
    open_cell(page, "sinusoidal", 3, 2)
    expected = np.sin(3 / 10000 ** (2 / 128))
    assert drawer(page)[:2] == (pytest.approx(expected, abs=1e-6),) * 2
    page.keyboard.press("Escape")
    open_cell(page, "rotary", 3, 1)
    angle = 3 * 10000 ** (-2 / 32)
    assert drawer(page)[:2] == (pytest.approx(np.cos(angle) - np.sin(angle), abs=1e-6),) * 2


def test_a_recurrent_model_can_be_compared_too(visit, ids):
    page = visit(width=390).open(
        f"#/compare?m={ids['spelling-recurrent']}&s={SOURCE}&o.mode=positions"
    )
    until(page, f"{PANELS} === {len(NAMES)}")
    assert page.locator("[data-own=true]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
