"""Every page in a real browser, both models and themes: no complaint, nothing outside, no barrier (axe)."""

import pytest
from axe_playwright_python.sync_playwright import Axe

PAGES = [
    "start",
    "overview",
    "tokens",
    "embedding",
    "attention",
    "heads",
    "alignment",
    "walk",
    "output",
    "decode",
    "knockout",
    "compare",
]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(
    ("model", "theme", "width"),
    [
        ("spelling", "light", 1280),
        ("spelling-recurrent", "dark", 390),
    ],
)
def test_a_page_opens_whole_and_without_barriers(visit, ids, name, model, theme, width):
    seen = visit(theme=theme, width=width)
    page = seen.open(f"#/{name}?m={ids[model]}&s=attention")
    assert page.locator("h1").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page scrolls sideways"
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()
