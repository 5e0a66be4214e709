"""Interaction: keyboard, edits, links, history, errors and long texts."""

import json
import re

import pytest

from regard.trace import record
from tests.browser.conftest import download_export, until, wait_for

SOURCE = "attention"
LONG = "internationalization" * 30


def focused(page) -> str:
    """The role of the focused element."""
    return page.evaluate(
        "document.activeElement.getAttribute('role') ?? document.activeElement.tagName"
    )


def tab_to(page, role: str, presses: int = 150) -> None:
    """Press Tab until an element with this role has the focus."""
    for _ in range(presses):
        page.keyboard.press("Tab")
        if focused(page) == role:
            return
    raise AssertionError(f"no {role} after {presses} times Tab")


@pytest.mark.parametrize("model", ["spelling", "spelling-recurrent"])
@pytest.mark.parametrize("name", ["embedding", "attention", "alignment"])
def test_grid_cells_are_reached_by_keyboard(visit, ids, model, name):
    visited = visit()
    chosen = (
        "&o.by=dec.1.cross.0&o.shape=matrix" if name == "alignment" else ""
    )  # means have no explanation
    page = visited.open(f"#/{name}?m={ids[model]}&s={SOURCE}{chosen}")
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


@pytest.mark.parametrize(
    "name", ["start", "overview", "tokens", "heads", "residual", "output", "decode", "ablation"]
)
def test_every_control_is_reached_by_tab(visit, ids, name):
    """Every clickable element is a tab stop; a radio group is one."""
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
            "(node => { const met = (window.met ??= new Map()); "
            "if (!met.has(node)) met.set(node, met.size); return "
            "node.closest('main') && node.matches('button, a[href], input, select') ? "
            "met.get(node) : -1 })"
            "(document.activeElement)"
        )
        if at >= 0 and at in reached:
            break
        reached.add(at)
    radios = page.evaluate("document.querySelectorAll('main input[type=radio]').length")
    assert len(reached - {-1}) >= wanted - radios
    assert wanted > 0


def test_entered_text_runs_the_model(visit, ids):
    visited = visit()
    page = visited.open(f"#/attention?m={ids['spelling']}")
    box = page.get_by_role("textbox").first
    box.fill("transformer")
    box.press("Enter")
    until(page, "location.hash.includes('s=transformer')")
    visited.wait_until_idle()
    assert "T R AE N S F AO R M ER" in re.sub(r"\s+", " ", page.locator("body").inner_text())


def test_edit_is_listed_and_can_be_removed(visit, ids):
    visited = visit()
    page = visited.open(
        f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.0.self&e=unscaled~dec.0.self"
    )
    assert "edited" in page.locator("footer").inner_text().lower()
    page.get_by_role("button", name=re.compile("[Rr]emove")).first.click()
    until(page, "!location.hash.includes('unscaled')")
    visited.wait_until_idle()
    assert re.search(
        r"checked, max \|Δ\| \d+(\.\d+)?e−[5-9]", page.locator("[data-check]").inner_text()
    )


def test_text_that_is_too_long_is_reported(visit, ids):
    visited = visit(clean=False)  # the browser logs the error response
    page = visited.open(f"#/heads?m={ids['spelling']}&s={LONG}")
    page.get_by_text(re.compile("600 tokens")).first.wait_for()
    assert visited.foreign_requests == []


@pytest.mark.parametrize("name", ["attention", "heads"])
def test_512_tokens_fit_on_the_page(visit, ids, name):
    visited = visit()
    page = visited.open(f"#/{name}?m={ids['spelling']}&s={LONG[:511]}&t=" + "+".join(["T"] * 40))
    page.locator("canvas").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_links_with_an_unknown_model_or_index(visit, ids):
    visited = visit(clean=False)
    page = visited.open("#/attention?m=nothing@00000000&s=a")
    assert (
        "nothing@00000000, which is not open here"
        in page.locator("main [role=status]").first.inner_text()
    )
    page = visited.open(f"#/attention?m={ids['spelling']}&s=a&x=enc.0.self.weights,9,9,9")
    page.locator("[data-drawer] [role=alert]").wait_for()


def test_expired_trace_is_requested_again(visit, ids):
    visited = visit(clean=False)
    page = visited.page
    expired = []

    def expire_once(route):
        if expired:
            route.continue_()
        else:
            expired.append(route.request.url)
            error = {"error": {"code": "trace-expired", "message": "the trace has expired"}}
            route.fulfill(status=410, content_type="application/json", body=json.dumps(error))

    page.route("**/api/trace/*/tensors*", expire_once)
    visited.open(f"#/attention?m={ids['spelling']}&s={SOURCE}")
    page.locator("[data-heatmap]").first.wait_for()
    assert expired
    assert page.locator("[role=alert]").count() == 0


def test_page_follows_the_browser_history(visit, ids):
    visited = visit()
    page = visited.open(f"#/output?m={ids['spelling']}&s=cat")
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
    visited.wait_until_idle()
    assert page.get_by_role("textbox").first.input_value() == "dog"


def test_edits_are_replaced_and_removed_singly(visit, ids):
    visited = visit()
    row = "row~dec.0.cross~0~0~" + "_".join(["0.5", "0.5", *["0"] * 8])
    page = visited.open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.0.cross&e={row}")
    slider = page.get_by_role("slider", name=re.compile("[Tt]emperature")).first
    for count in (2, 2):  # added once, then replaced
        slider.press("ArrowRight")
        visited.wait_until_idle()
        assert page.locator(".chip").count() == count
    assert page.locator("[role=alert]").count() == 0
    page.locator(".chip", has_text="temperature").get_by_role("button").click()
    visited.wait_until_idle()
    assert "by hand" in page.locator(".chip").inner_text()


def test_edits_of_a_saved_page_cannot_be_removed(visit, ids, offline_page, tmp_path):
    visited = visit()
    page = visited.open(
        f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.1.cross&e=temperature~dec.1.cross~2"
    )
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    offline_page.locator(".chip").wait_for()
    assert offline_page.locator(".chip button").count() == 0


def test_invalid_edits_in_a_link_can_be_removed(visit, ids):
    visited = visit(clean=False)
    page = visited.open("#/attention?m=other@12345678&s=cat&e=temperature~attn~2")
    alert = page.get_by_role("alert").first
    assert "unknown attention 'attn'" in alert.inner_text()
    assert "other@12345678, which is not open here" in alert.inner_text()
    alert.get_by_role("button", name="Remove all").click()
    visited.wait_until_idle()
    assert page.locator("[data-heatmap]").count() > 0


def test_rejected_text_shows_no_output(visit, ids):
    visited = visit(clean=False)
    page = visited.open(f"#/attention?m={ids['spelling']}&s=attention")
    box = page.get_by_role("textbox").first
    box.fill("a" * 600)
    box.press("Enter")
    page.get_by_role("alert").first.wait_for()
    visited.wait_until_idle()
    assert "AH T EH N SH AH N" not in page.locator("body").inner_text()


@pytest.mark.parametrize("height", [844, 667])
def test_menu_of_a_small_screen(visit, ids, height):
    visited = visit(width=390, height=height)
    page = visited.open(f"#/attention?m={ids['spelling']}&s=attention")
    burger = page.get_by_role("button", name=re.compile("[Mm]enu|[Mm]ap|pages")).first
    burger.click()
    box = page.locator(".map.open").bounding_box()
    button = burger.bounding_box()
    assert box["y"] >= button["y"] + button["height"]  # it does not cover its button
    assert box["y"] + box["height"] <= height + 1  # it scrolls to its end
    burger.click()
    assert page.locator(".map.open").count() == 0
    burger.click()
    page.mouse.click(380, box["y"] + 200)
    assert page.locator(".map.open").count() == 0


def decimals(page) -> set[str]:
    """The decimal numbers on a page, including those in accessible names."""
    shown = page.locator("main").inner_text() + page.evaluate(
        "[...document.querySelectorAll('main [aria-label]')].map(node => node.ariaLabel).join(' ')"
    )
    return set(re.findall(r"\d\.\d{3,}", shown))


@pytest.mark.parametrize("name", ["attention", "output", "residual", "decode"])
def test_numbers_of_another_text_are_not_shown(visit, ids, name):
    visited = visit()
    page = visited.open(f"#/{name}?m={ids['spelling']}&s=detention&a=enc.0.self")
    routes = []
    page.route("**/api/trace/*/*", lambda route: routes.append(route))  # only the trace arrives
    before = decimals(page)
    assert before
    box = page.get_by_role("textbox").first
    box.fill("a")
    box.press("Enter")
    until(page, "location.hash.includes('s=a&') || location.hash.endsWith('s=a')")
    until(page, "document.querySelector('form .primary').ariaBusy === 'false'")
    wait_for(page, lambda: not before & decimals(page), "the old numbers are gone")
    for route in routes:
        route.continue_()
    page.unroute("**/api/trace/*/*")
    visited.wait_until_idle()
    assert decimals(page)


def test_edited_row_is_dropped_with_a_new_target(visit, ids):
    visited = visit()
    row = "row~dec.0.cross~0~6~" + "_".join(["0.5", "0.5", *["0"] * 8])
    page = visited.open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.0.cross&e={row}")
    page.locator("#target-mode").select_option("teacher-forcing")
    box = page.get_by_role("textbox").nth(1)
    box.fill("AH T")
    box.press("Enter")
    until(page, "location.hash.includes('t=')")
    visited.wait_until_idle()
    assert page.locator("[role=alert]").count() == 0
    assert page.locator(".chip").count() == 0


def test_applied_row_keeps_unchanged_weights(visit, ids, pipelines):
    visited = visit()
    page = visited.open(f"#/attention?m={ids['spelling']}&s={LONG[:20]}&a=enc.0.self")
    page.get_by_role("button", name="Edit this row").click()
    page.get_by_role("button", name="Apply").click()
    until(page, "location.hash.includes('e=row')")
    applied = re.search(
        r"row~enc\.0\.self~0~0~([^&;]+)", page.evaluate("decodeURIComponent(location.hash)")
    )
    weights = record(pipelines["spelling"], LONG[:20])["enc.0.self.weights"][0, 0].tolist()
    assert [float(one) for one in applied[1].split("_")] == pytest.approx(weights, abs=2e-6)


def test_switches_apply_and_the_theme_persists(visit, ids):
    visited = visit()
    page = visited.open(f"#/attention?m={ids['spelling']}&s=cat&e=unscaled")
    box = page.get_by_role("checkbox", name=re.compile("scaling")).first
    assert box.is_checked()
    page.get_by_role("button", name=re.compile("[Dd]ark")).click()
    page.get_by_role("link", name="Tokens").first.click()
    page.go_back()
    until(page, "document.querySelector('h1').textContent.includes('ttention')")
    assert page.get_by_role("button", name=re.compile("[Ll]ight")).count() == 1
    box.uncheck()
    until(page, "!location.hash.includes('unscaled')")
