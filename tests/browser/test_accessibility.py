"""Every page in a browser, both models and themes: no errors, no accessibility violations."""

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
    "residual",
    "output",
    "decode",
    "ablation",
    "compare",
]
SCREENS = [("spelling", "light", 1280), ("spelling-recurrent", "dark", 390)]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("model", "theme", "width"), SCREENS)
def test_page_has_no_accessibility_violations(visit, ids, name, model, theme, width):
    page = visit(theme=theme, width=width).open(f"#/{name}?m={ids[model]}&s=attention")
    assert page.locator("h1").first.is_visible()
    fits = page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert fits, "the page scrolls sideways"
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()
