"""Journeys: by keyboard alone, through edits, mistakes and long texts."""

import json
import re

import pytest

from regard.trace import record
from tests.browser.conftest import download_export, until, wait_for

SOURCE = "attention"
LONG = "internationalization" * 20


def focused(page) -> str:
    """The role of what has the focus."""
    return page.evaluate("document.activeElement.getAttribute('role') ?? document.activeElement.tagName")


def tab_to(page, role: str, most: int = 150) -> None:
    """Press Tab until something of that role has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if focused(page) == role:
            return
    raise AssertionError(f"{most} times Tab lead to no {role}")


@pytest.mark.parametrize("model", ["spelling", "spelling-recurrent"])
@pytest.mark.parametrize("name", ["embedding", "attention", "alignment"])
def test_a_grid_by_keyboard_alone(visit, ids, model, name):
    seen = visit()
    chosen = "&o.by=dec.1.cross.0&o.shape=matrix" if name == "alignment" else ""  # a mean has no arithmetic of its own
    page = seen.open(f"#/{name}?m={ids[model]}&s={SOURCE}{chosen}")
    tab_to(page, "gridcell")
    before = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    after = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert after != before
    page.keyboard.press("Enter")
    page.locator("[data-drawer] [data-value]").wait_for()
    page.keyboard.press("Escape")
    page.locator("[data-drawer] [data-value]").wait_for(state="detached")
    assert focused(page) == "gridcell"


@pytest.mark.parametrize("name", ["start", "overview", "tokens", "heads", "walk", "output", "decode", "knockout"])
def test_every_control_of_a_page_is_reached_by_tab(visit, ids, name):
    """Whatever can be clicked can be tabbed to."""
    page = visit().open(f"#/{name}?m={ids['spelling']}&s={SOURCE}")
    wanted = page.evaluate(
        "[...document.querySelectorAll('main button, main a[href], main input, main select')]"
        ".filter(node => !node.disabled && node.offsetParent && node.tabIndex >= 0).length"
    )
    loose = page.evaluate(
        "[...document.querySelectorAll('main *')]"
        ".filter(node => node.onclick && !node.closest('button, a, input, label')).length"
    )
    assert loose == 0
    reached = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        at = page.evaluate(
            "(node => { const met = (window.met ??= new Map()); if (!met.has(node)) met.set(node, met.size); return "
            "node.closest('main') && node.matches('button, a[href], input, select') ? met.get(node) : -1 })"
            "(document.activeElement)"
        )
        if at >= 0 and at in reached:
            break
        reached.add(at)
    radios = page.evaluate("document.querySelectorAll('main input[type=radio]').length")  # a group is one stop
    assert len(reached - {-1}) >= wanted - radios
    assert wanted > 0


def test_typing_a_word_runs_the_model(visit, ids):
    seen = visit()
    page = seen.open(f"#/attention?m={ids['spelling']}")
    box = page.get_by_role("textbox").first
    box.fill("transformer")
    box.press("Enter")
    until(page, "location.hash.includes('s=transformer')")
    seen.wait_until_idle()
    assert "T R AE N S F AO R M ER" in re.sub(r"\s+", " ", page.locator("body").inner_text())


def test_an_edit_is_listed_changes_the_numbers_and_can_be_removed(visit, ids):
    seen = visit()
    page = seen.open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.0.self&e=unscaled~dec.0.self")
    assert "edited" in page.locator("footer").inner_text().lower()
    page.get_by_role("button", name=re.compile("[Rr]emove")).first.click()
    until(page, "!location.hash.includes('unscaled')")
    seen.wait_until_idle()
    assert re.search(r"checked, max \|Δ\| \d+(\.\d+)?e−[5-9]", page.locator("[data-check]").inner_text())


def test_a_text_too_long_is_said_on_the_page(visit, ids):
    seen = visit(clean=False)  # the browser itself complains of the refusal
    page = seen.open(f"#/heads?m={ids['spelling']}&s={LONG}")
    page.get_by_text(re.compile("400 tokens")).first.wait_for()
    assert seen.foreign_requests == []


@pytest.mark.parametrize("name", ["attention", "heads"])
def test_256_tokens_are_shown(visit, ids, name):
    seen = visit()
    page = seen.open(f"#/{name}?m={ids['spelling']}&s={LONG[:255]}&t=" + "+".join(["T"] * 40))
    assert page.locator("canvas").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_an_unknown_model_and_wrong_places_in_a_link(visit, ids):
    seen = visit(clean=False)
    page = seen.open("#/attention?m=nothing@00000000&s=a")
    assert "nothing@00000000, which is not open here" in page.locator("[role=status]").first.inner_text()
    page = seen.open(f"#/attention?m={ids['spelling']}&s=a&x=enc.0.self.weights,9,9,9")
    page.locator("[data-drawer] [role=alert]").wait_for()


def test_a_dropped_trace_is_asked_for_again(visit, ids):
    seen = visit(clean=False)
    page = seen.page
    dropped = []

    def drop(route):
        if dropped:
            route.continue_()
        else:
            dropped.append(route.request.url)
            error = {"error": {"code": "trace-dropped", "message": "it is no longer here"}}
            route.fulfill(status=410, content_type="application/json", body=json.dumps(error))

    page.route("**/api/trace/*/tensors*", drop)
    seen.open(f"#/attention?m={ids['spelling']}&s={SOURCE}")
    page.locator("[data-heatmap]").first.wait_for()
    assert dropped
    assert page.locator("[role=alert]").count() == 0


def test_the_page_follows_the_address_back_and_forth(visit, ids):
    seen = visit()
    page = seen.open(f"#/output?m={ids['spelling']}&s=cat")
    page.get_by_role("link", name="Tokens").first.click()
    box = page.get_by_role("textbox").first
    box.fill("dog")
    box.press("Enter")
    until(page, "location.hash.includes('s=dog')")
    page.go_back()
    until(page, "document.querySelector('h1').textContent.includes('Output')")
    page.go_forward()
    until(page, "location.hash.includes('s=dog')")
    until(page, "document.querySelector('h1').textContent.includes('Tokens')")
    seen.wait_until_idle()
    assert page.get_by_role("textbox").first.input_value() == "dog"


def test_edits_in_any_order_and_each_removed_by_its_name(visit, ids):
    seen = visit()
    row = "row~dec.0.cross~0~0~" + "_".join(["0.5", "0.5", *["0"] * 8])
    page = seen.open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.0.cross&e={row}")
    slider = page.get_by_role("slider", name=re.compile("[Tt]emperature")).first
    for count in (2, 2):  # once after the row, and once more in its own place
        slider.press("ArrowRight")
        seen.wait_until_idle()
        assert page.locator(".chip").count() == count
    assert page.locator("[role=alert]").count() == 0
    page.locator(".chip", has_text="temperature").get_by_role("button").click()
    seen.wait_until_idle()
    assert "by hand" in page.locator(".chip").inner_text()


def test_a_saved_page_has_edits_and_no_way_to_remove_them(visit, ids, offline_page, tmp_path):
    seen = visit()
    page = seen.open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.1.cross&e=temperature~dec.1.cross~2")
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    offline_page.locator(".chip").wait_for()
    assert offline_page.locator(".chip button").count() == 0


def test_a_link_whose_edits_do_not_fit_has_a_way_out(visit, ids):
    seen = visit(clean=False)
    page = seen.open("#/attention?m=other@12345678&s=cat&e=temperature~attn~2")
    alert = page.get_by_role("alert").first
    assert "unknown attention 'attn'" in alert.inner_text()
    assert "other@12345678, which is not open here" in alert.inner_text()
    alert.get_by_role("button", name="Remove all").click()
    seen.wait_until_idle()
    assert page.locator("[data-heatmap]").count() > 0


def test_a_text_that_was_refused_has_no_answer(visit, ids):
    seen = visit(clean=False)
    page = seen.open(f"#/attention?m={ids['spelling']}&s=attention")
    box = page.get_by_role("textbox").first
    box.fill("a" * 300)
    box.press("Enter")
    page.get_by_role("alert").first.wait_for()
    seen.wait_until_idle()
    assert "AH T EH N SH AH N" not in page.locator("body").inner_text()


@pytest.mark.parametrize("height", [844, 667])
def test_the_menu_of_a_phone_opens_closes_and_scrolls(visit, ids, height):
    seen = visit(width=390, height=height)
    page = seen.open(f"#/attention?m={ids['spelling']}&s=attention")
    burger = page.get_by_role("button", name=re.compile("[Mm]enu|[Mm]ap|pages")).first
    burger.click()
    box = page.locator(".map.open").bounding_box()
    below = burger.bounding_box()
    assert box["y"] >= below["y"] + below["height"]  # its own button stays free
    assert box["y"] + box["height"] <= height + 1  # and its end is in reach: it scrolls
    burger.click()
    assert page.locator(".map.open").count() == 0
    burger.click()
    page.mouse.click(380, box["y"] + 200)
    assert page.locator(".map.open").count() == 0


def decimals(page) -> set[str]:
    """The numbers on a page that are no counts; of a picture, what it is told by."""
    shown = page.locator("main").inner_text() + page.evaluate(
        "[...document.querySelectorAll('main [aria-label]')].map(node => node.ariaLabel).join(' ')"
    )
    return set(re.findall(r"\d\.\d{3,}", shown))


@pytest.mark.parametrize("name", ["attention", "output", "walk", "decode"])
def test_numbers_of_other_words_do_not_stand_under_new_ones(visit, ids, name):
    seen = visit()
    page = seen.open(f"#/{name}?m={ids['spelling']}&s=detention&a=enc.0.self")
    held = []
    page.route("**/api/trace/*/*", lambda route: held.append(route))  # nothing comes but the trace itself
    before = decimals(page)
    assert before
    box = page.get_by_role("textbox").first
    box.fill("a")
    box.press("Enter")
    until(page, "location.hash.includes('s=a&') || location.hash.endsWith('s=a')")
    until(page, "document.querySelector('form .primary').ariaBusy === 'false'")
    wait_for(page, lambda: not before & decimals(page), "the old numbers are gone")
    for route in held:
        route.continue_()
    page.unroute("**/api/trace/*/*")
    seen.wait_until_idle()
    assert decimals(page)


def test_a_row_by_hand_is_of_the_target_it_was_made_for(visit, ids):
    seen = visit()
    row = "row~dec.0.cross~0~6~" + "_".join(["0.5", "0.5", *["0"] * 8])
    page = seen.open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.0.cross&e={row}")
    page.locator("#given").select_option("given")
    box = page.get_by_role("textbox").nth(1)
    box.fill("AH T")
    box.press("Enter")
    until(page, "location.hash.includes('t=')")
    seen.wait_until_idle()
    assert page.locator("[role=alert]").count() == 0
    assert page.locator(".chip").count() == 0


def test_a_row_that_nobody_moved_stays_what_it_was(visit, ids, pipelines):
    seen = visit()
    page = seen.open(f"#/attention?m={ids['spelling']}&s={LONG[:20]}&a=enc.0.self")
    page.get_by_role("button", name=re.compile("by hand")).click()
    page.get_by_role("button", name="Apply").click()
    until(page, "location.hash.includes('e=row')")
    given = re.search(r"row~enc\.0\.self~0~0~([^&;]+)", page.evaluate("decodeURIComponent(location.hash)"))
    was = record(pipelines["spelling"], LONG[:20])["enc.0.self.weights"][0, 0].tolist()
    assert [float(one) for one in given[1].split("_")] == pytest.approx(was, abs=2e-6)


def test_switches_of_all_attentions_and_night_that_stays(visit, ids):
    seen = visit()
    page = seen.open(f"#/attention?m={ids['spelling']}&s=cat&e=unscaled")
    box = page.get_by_role("checkbox", name=re.compile("scaling")).first
    assert box.is_checked()
    page.get_by_role("button", name=re.compile("[Dd]ark")).click()
    page.get_by_role("link", name="Tokens").first.click()
    page.go_back()
    until(page, "document.querySelector('h1').textContent.includes('ttention')")
    assert page.get_by_role("button", name=re.compile("[Ll]ight")).count() == 1  # it is still night
    box.uncheck()
    until(page, "!location.hash.includes('unscaled')")
