"""Reading the arithmetic drawer."""

from tests.browser.conftest import until

VALUE = "document.querySelector('[data-drawer] [data-value]') !== null"
PAINTED = "document.querySelector('[data-drawer]').getAttribute('aria-busy') === 'false'"
READ = """() => {
  const find = name => document.querySelector(`[data-drawer] [data-${name}]`);
  const bars = [...document.querySelectorAll('[data-drawer] [data-size]')];
  return [find('value').dataset.value, find('result').dataset.result,
          bars.map(bar => bar.dataset.size)];
}"""


def drawer(page) -> tuple[float, float, list[float]]:
    """The shown value, the result recomputed from its terms, and the size of each term."""
    until(page, VALUE)
    until(page, PAINTED)  # a long table has eight lines first, and the button for all of them later
    if page.locator("[data-all-lines]").count():
        page.locator("[data-all-lines]").click()
    value, result, sizes = page.evaluate(READ)
    return float(value), float(result), [float(size) for size in sizes]
