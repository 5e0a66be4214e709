"""The report of a run in a browser: wide and narrow, light and dark, without requests."""

import pytest

import regard
from tests.browser.conftest import new_context
from tests.commands.small import Quiet, pairs

SETTINGS = {"width": 16, "heads": 2, "steps": 6, "batch_tokens": 192, "evaluations": 3}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a small run."""
    out = tmp_path_factory.mktemp("report") / "run"
    regard.train(pairs(150, seed=9), out, **SETTINGS, display=Quiet())
    return out / "report.html"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_report_fits_the_screen_without_requests(browser, report, width, scheme):
    with new_context(
        browser, viewport={"width": width, "height": 900}, color_scheme=scheme
    ) as context:
        page, requests = context.new_page(), []
        page.on("request", lambda request: requests.append(request.url))
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(report.as_uri())
        assert requests == [report.as_uri()]
        assert errors == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        narrow = page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, svg') "
            "&& e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
        )
        assert narrow == []
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 31)")
        assert page.locator("h2").all_inner_texts()[0].startswith("Is it better than a trivial")
        assert page.locator("svg").count() >= 3
