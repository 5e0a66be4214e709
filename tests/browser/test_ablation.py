"""The Ablation page: ablated heads, their effects, and attention vs. effect."""

import re

import pytest

import regard
from regard.trace import agreement, alignment_matrix, occlusion, record
from tests.browser.conftest import download_export, until

SOURCE = "attention"
EFFECTS = "document.querySelectorAll('[data-effect]').length"
SUMMARY = "document.querySelector('[data-summary]') !== null"


@pytest.fixture(scope="module")
def known():
    pipeline = regard.load("spelling")
    trace = record(pipeline, SOURCE, search=pipeline.search(beam=1))
    return pipeline, trace, occlusion(pipeline, trace)


@pytest.fixture
def page(visit, ids):
    return visit().open(f"#/ablation?m={ids['spelling']}&s={SOURCE}&r=4")


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def head_edit(attention: str, head: int, **options) -> dict:
    return {"kind": "ablate", "attention": attention, "head": head, **options}


def test_every_head_shows_its_ablation_effect(page, known):
    pipeline, trace, _ = known
    heads = [(one.name, head) for one in trace.attentions for head in range(one.heads)]
    until(page, f"{EFFECTS} === {len(heads)}")
    for name, head in (heads[0], heads[-1]):
        edits = [head_edit(name, head)]
        without = record(pipeline, SOURCE, trace.answer.text, edits=edits)["out.total"]
        label = page.locator(f'[data-head="{name}.{head}"]').get_attribute("aria-label")
        effect = number(label.rsplit(" ", 1)[1])
        assert effect == pytest.approx(float(trace["out.total"] - without), abs=0.006)
    bars = page.locator('[data-bars="ablation.heads"] .number').all_inner_texts()
    assert [number(bar) for bar in bars] == sorted(map(number, bars), reverse=True)
    assert len(bars) == len(heads)


def test_heads_are_ablated_and_restored(page, known):
    pipeline, trace, _ = known
    full, answer = float(trace["out.total"]), trace.answer.text
    heads = [("enc.0.self", 3), ("dec.0.cross", 1)]
    for attention, head in heads:
        selector = f'[data-head="{attention}.{head}"]'
        page.locator(selector).focus()
        page.keyboard.press("Space")
        until(page, f"document.querySelector('{selector}').ariaChecked === 'true'")
        until(page, "document.querySelector('[data-head]').disabled === false")
    edits = [head_edit(*head) for head in heads]
    output = record(pipeline, SOURCE, edits=edits).answer.text
    assert output != answer
    until(page, f"document.querySelector('[data-now]').innerText === {output!r}")
    assert page.locator("[data-full-model]").inner_text() == answer
    assert page.get_by_text("different output").is_visible()
    page.get_by_role("button", name="Score it on the full model’s output").click()
    loss = full - float(record(pipeline, SOURCE, answer, edits=edits)["out.total"])
    until(page, f"document.body.innerText.includes('same output, log p lower by {loss:.3f}')")
    page.get_by_label("Uniform weights").check()
    uniform = [head_edit(*head, by="uniform") for head in heads]
    loss = full - float(record(pipeline, SOURCE, answer, edits=uniform)["out.total"])
    change = f"{'lower' if loss >= 0 else 'higher'} by {abs(loss):.3f}"
    until(page, f"document.body.innerText.includes('same output, log p {change}')")
    page.get_by_role("button", name="Restore all heads").click()
    until(page, "!document.querySelector('[data-head][aria-checked=true]')")


def test_attention_weights_are_compared_with_effects(page, known):
    _, trace, effects = known
    until(page, SUMMARY)
    weights = alignment_matrix(trace)
    attended, needed = (int(matrix[4].argmax()) for matrix in (weights, effects))
    assert attended != needed
    assert page.locator("[data-summary]").inner_text() == (
        f"For “SH”, {attended} “{SOURCE[attended]}” has the highest weight "
        f"({weights[4, attended]:.2f}), but {needed} “{SOURCE[needed]}” has the largest effect "
        f"({effects[4, needed]:.2f})."
    )
    rank = page.locator("[data-rank]").inner_text()
    expected = agreement(weights, effects)
    assert number(rank.rsplit(" ", 1)[1]) == pytest.approx(expected, abs=1e-3)
    page.get_by_label("Weights of").select_option("dec.1.cross")
    rank = agreement(alignment_matrix(trace, "dec.1.cross"), effects)
    text = f"rank correlation {rank:.3f}".replace("-", "−")
    until(page, f"document.querySelector('[data-rank]').innerText === '{text}'")
    view = page.locator('[data-view="ablation.scatter"]')
    view.get_by_role("button", name=re.compile("as a table")).click()
    rows = view.locator("tbody tr")
    assert rows.count() == effects.numel()
    cells = rows.nth(0).locator("td, th").all_inner_texts()
    assert number(cells[-1]) == pytest.approx(float(effects[0, 0]), abs=1e-3)


def test_saved_page_contains_the_occlusion(page, offline_page, tmp_path):
    until(page, SUMMARY)
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    until(offline_page, SUMMARY)
    texts = [one.locator("[data-summary]").inner_text() for one in (page, offline_page)]
    assert texts[0] == texts[1]
    assert offline_page.locator("[data-head]").first.is_disabled()


def test_effects_of_another_text_are_not_shown(page):
    until(page, f"{EFFECTS} > 0 && {SUMMARY}")
    routes = []
    for address in ("**/api/trace/*/*", "**/api/head-ablation"):
        page.route(address, lambda route: routes.append(route))
    box = page.get_by_role("textbox").first
    box.fill("detention")
    box.press("Enter")
    until(page, "location.hash.includes('s=detention')")
    until(page, "document.querySelector('form .primary').ariaBusy === 'false'")
    until(page, f"{EFFECTS} === 0 && !({SUMMARY})")
    assert page.locator("[data-bars]").count() == 0
    for route in routes:
        route.continue_()
    until(page, f"{EFFECTS} > 0 && {SUMMARY}")


def test_failed_measurement_is_not_repeated(visit, ids):
    visited = visit(clean=False)
    page, requests = visited.page, []
    error = {"error": {"code": "busy", "message": "the measurement failed"}}

    def fail(route) -> None:
        requests.append(route.request.url)
        route.fulfill(status=500, json=error)

    page.route("**/api/head-ablation", fail)
    page.goto(f"{visited.address}/#/ablation?m={ids['spelling']}&s={SOURCE}")
    until(page, "document.body.innerText.includes('the measurement failed')")
    visited.wait_until_idle()
    assert len(requests) == 1
    page.unroute("**/api/head-ablation")
    page.get_by_role("button", name="Try again").click()
    until(page, f"{EFFECTS} > 0")


def test_effects_of_another_model_are_not_shown(page, ids):
    until(page, f"{EFFECTS} > 1")
    page.locator("header select").first.select_option(ids["spelling-recurrent"])
    until(page, "document.querySelectorAll('[data-head]').length === 1")
    until(page, f"{EFFECTS} === 1")
    assert page.locator("[data-bars] li").count() == 1
    until(page, "!document.querySelector('main [role=status]')?.innerText.includes('Ablating')")


def test_bars_announce_that_they_ablate_a_head(page):
    until(page, f"{EFFECTS} > 0")
    bars = page.locator('[data-bars="ablation.heads"]')
    view = page.locator('[data-view="ablation.heads"]')
    assert "Enter ablates the head or restores it" in view.inner_text()
    assert "explains the number" not in view.inner_text()
    first = bars.get_by_role("switch").first
    assert re.match(r"^Ablate .*: effect ", first.get_attribute("aria-label"))
    assert first.get_attribute("aria-checked") == "false"
    first.focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[data-head][aria-checked=true]') !== null")
    assert first.get_attribute("aria-checked") == "true"
