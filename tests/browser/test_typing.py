"""While the user types on the start page, one trace is requested at a time: the newest text."""

import json

from tests.browser.conftest import until, wait_for

SHOWN = "document.querySelectorAll('[data-live] button').length"


def test_typing_waits_for_the_running_trace(visit, ids):
    page = visit().open(f"#/start?m={ids['spelling']}")
    held = []
    page.route("**/api/trace", lambda route: held.append(route))
    box = page.get_by_role("textbox").first
    box.fill("t")
    wait_for(page, lambda: len(held) == 1, "the first trace is requested")
    box.press_sequentially("able", delay=90)
    page.wait_for_timeout(500)
    texts = [json.loads(route.request.post_data)["source"] for route in held]
    assert texts == ["t"]
    held[0].continue_()
    wait_for(page, lambda: len(held) == 2, "the newest text is requested")
    assert json.loads(held[1].request.post_data)["source"] == "table"
    held[1].continue_()
    until(page, f"{SHOWN} === 6")  # T EY B AH L and the end
