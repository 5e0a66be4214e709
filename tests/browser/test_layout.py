"""The frame of the pages: nothing is covered, cut off or missing at any width."""

import pytest

from tests.browser.conftest import until

BOXES = """(() => {
  const box = (selector) => document.querySelector(selector).getBoundingClientRect();
  return [box(".map").bottom, box("footer").top, box("footer").bottom, window.innerHeight];
})()"""


def test_side_map_ends_above_the_footer(visit, ids):
    page = visit(height=700).open(f"#/attention?m={ids['spelling']}&s=attention")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    map_bottom, footer_top, footer_bottom, window = page.evaluate(BOXES)
    assert footer_bottom <= window + 1  # the page is scrolled to its end
    assert map_bottom <= footer_top + 1


@pytest.mark.parametrize("width", [1280, 390])
def test_long_output_fits_on_the_ablation_page(visit, ids, width):
    source = "attention" * 9
    page = visit(width=width).open(
        f"#/ablation?m={ids['spelling']}&s={source}&e=ablate~dec.0.cross~1~zero"
    )
    until(page, "document.querySelector('[data-full-model]') !== null")
    assert len(page.locator("[data-full-model]").inner_text()) > 120
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    inside = """(() => {
      const table = document.querySelector('[data-full-model]').closest('table');
      return table.getBoundingClientRect().right <= window.innerWidth;
    })()"""
    assert page.evaluate(inside)


def test_phone_has_the_compare_button(visit, ids):
    page = visit(width=390).open(f"#/attention?m={ids['spelling']}&s=attention")
    button = page.locator("header").get_by_role("button", name="Compare")
    assert button.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    button.click()
    until(page, "location.hash.startsWith('#/compare')")
    until(page, "document.body.innerText.includes('Both runs are the same')")


def test_page_is_loaded_compressed(visit, ids):
    visited = visit()
    encodings = {}
    visited.page.on(
        "response",
        lambda response: encodings.setdefault(
            response.url.rsplit("/", 1)[1], response.headers.get("content-encoding")
        ),
    )
    visited.open(f"#/tokens?m={ids['spelling']}&s=attention")
    assert encodings["explorer.js"] == encodings["explorer.css"] == "gzip"
