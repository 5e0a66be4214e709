"""The page of `regard serve` in a browser: it streams, shows errors and fits a phone."""

import pytest

from tests.serve.http_helpers import FakeService, running

WIDTH = 390


@pytest.fixture
def opened(browser):
    with running(FakeService()) as server:
        page = browser.new_context(viewport={"width": WIDTH, "height": 800}).new_page()
        problems = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(server.url)
        page.wait_for_function("document.querySelector('#model').options.length > 0")
        yield server, page
        assert problems == []
        page.context.close()


def test_a_stream_is_shown_with_its_tokens(opened):
    server, page = opened
    page.fill("#text", "abc")
    page.click("#run")
    page.wait_for_selector("#details:not([hidden])")
    assert page.inner_text("#output") == "cba"
    assert page.locator("#tokens li").all_inner_texts() == ["c\n61 %", "b\n61 %", "a\n61 %"]
    assert server.service.calls == [("reverse", "abc", {}, None)]
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH


def test_several_outputs_and_an_error_are_shown(opened):
    _, page = opened
    page.fill("#text", "ab")
    page.fill("#best", "3")
    page.click("#run")
    page.wait_for_selector("#details:not([hidden])")
    assert page.locator("#others li").all_inner_texts() == ["ba (25.0 %)"] * 2


def test_the_api_page_lists_the_fields(opened):
    server, page = opened
    page.goto(f"{server.url}/docs")
    page.wait_for_selector("details[open] dt")
    names = page.locator("details[open] dt code").all_inner_texts()
    assert {"input", "beam", "alignment"} <= set(names)
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
