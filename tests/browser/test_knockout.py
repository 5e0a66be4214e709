"""The knock-out lab: heads cut by mouse and keyboard, what the model says then, and attention against cause."""

import re

import pytest

import regard
from regard.trace import agreement, alignment_matrix, occlusion, record
from tests.browser.conftest import download_export, until

SOURCE = "attention"


@pytest.fixture(scope="module")
def known():
    pipeline = regard.load("spelling")
    trace = record(pipeline, SOURCE, search=pipeline.search(beam=1))
    return pipeline, trace, occlusion(pipeline, trace)


@pytest.fixture
def page(visit, ids):
    return visit().open(f"#/knockout?m={ids['spelling']}&s={SOURCE}&r=4")


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_a_switch_for_each_head_says_what_the_text_loses_without_it(page, known):
    pipeline, trace, _ = known
    heads = [(one.name, head) for one in trace.attentions for head in range(one.heads)]
    until(page, f"document.querySelectorAll('[data-head] small').length === {len(heads)}")
    for name, head in (heads[0], heads[-1]):
        cut = {"kind": "knock-out", "attention": name, "head": head}
        truth = float(trace["out.total"] - record(pipeline, SOURCE, trace.answer.text, edits=[cut])["out.total"])
        label = page.locator(f'[data-head="{name}.{head}"]').get_attribute("aria-label")
        assert number(label.rsplit(" ", 1)[1]) == pytest.approx(truth, abs=0.006)
    bars = page.evaluate(
        "[...document.querySelectorAll('[data-bars=\"knockout.sweep\"] .number')].map(x => x.innerText)"
    )
    assert [number(bar) for bar in bars] == sorted(map(number, bars), reverse=True)
    assert len(bars) == len(heads)


def test_heads_are_cut_and_given_back(page, known):
    pipeline, trace, _ = known
    cuts = [
        {"kind": "knock-out", "attention": "enc.0.self", "head": 3},
        {"kind": "knock-out", "attention": "dec.0.cross", "head": 1},
    ]
    for cut in cuts:
        switch = page.locator(f'[data-head="{cut["attention"]}.{cut["head"]}"]')
        switch.focus()
        page.keyboard.press("Space")
        until(
            page, f"document.querySelector('[data-head=\"{cut['attention']}.{cut['head']}\"]').ariaChecked === 'true'"
        )
        until(page, "document.querySelector('[data-head]').disabled === false")
    said = record(pipeline, SOURCE, edits=cuts).answer.text
    assert said != trace.answer.text
    until(page, f"document.querySelector('[data-now]').innerText === {said!r}")
    assert page.locator("[data-whole]").inner_text() == trace.answer.text
    assert page.get_by_text("another text").is_visible()
    page.get_by_role("button", name="Hold it to the whole model’s text").click()
    held = record(pipeline, SOURCE, trace.answer.text, edits=cuts)
    less = float(trace["out.total"] - held["out.total"])
    until(page, f"document.body.innerText.includes('the same text, {less:.3f} less likely')")
    page.get_by_label("Uniform weights").check()
    uniform = record(pipeline, SOURCE, trace.answer.text, edits=[{**cut, "by": "uniform"} for cut in cuts])
    less = float(trace["out.total"] - uniform["out.total"])
    change = f"{abs(less):.3f} {'less likely' if less >= 0 else 'likelier'}"
    until(page, f"document.body.innerText.includes('the same text, {change}')")
    page.get_by_role("button", name="Give all heads back").click()
    until(page, "!document.querySelector('[data-head][aria-checked=true]')")


def test_attention_against_cause(page, known):
    _, trace, effects = known
    until(page, "document.querySelector('[data-told]') !== null")
    weights = alignment_matrix(trace)
    looked, needed = (int(matrix[4].argmax()) for matrix in (weights, effects))
    told = page.locator("[data-told]").inner_text()
    assert looked != needed
    assert told == (
        f"For “SH” the model looked most at {looked} “{SOURCE[looked]}” ({weights[4, looked]:.2f}), "
        f"but needed {needed} “{SOURCE[needed]}” most ({effects[4, needed]:.2f})."
    )
    rank = page.locator("[data-rank]").inner_text()
    assert number(rank.rsplit(" ", 1)[1]) == pytest.approx(agreement(weights, effects), abs=1e-3)
    page.get_by_label("Weights of").select_option("dec.1.cross")
    rank = agreement(alignment_matrix(trace, "dec.1.cross"), effects)
    until(page, f"document.querySelector('[data-rank]').innerText === 'rank correlation {rank:.3f}'.replace('-', '−')")
    view = page.locator('[data-view="knockout.against"]')
    view.get_by_role("button", name=re.compile("as a table")).click()
    rows = view.locator("tbody tr")
    assert rows.count() == effects.numel()
    cells = rows.nth(0).locator("td, th").all_inner_texts()
    assert number(cells[-1]) == pytest.approx(float(effects[0, 0]), abs=1e-3)


def test_a_saved_page_keeps_its_causes(page, offline_page, tmp_path, known):
    until(page, "document.querySelector('[data-told]') !== null")
    saved = tmp_path / "saved.html"
    saved.write_bytes(download_export(page, "HTML|one file|One file"))
    offline_page.goto(saved.as_uri())
    until(offline_page, "document.querySelector('[data-told]') !== null")
    assert offline_page.locator("[data-told]").inner_text() == page.locator("[data-told]").inner_text()
    assert offline_page.locator("[data-head]").first.is_disabled()


def test_effects_of_other_words_do_not_stand_under_new_ones(page):
    until(page, "document.querySelectorAll('[data-head] small').length > 0 && document.querySelector('[data-told]')")
    held = []
    for address in ("**/api/trace/*/*", "**/api/sweep"):
        page.route(address, lambda route: held.append(route))
    box = page.get_by_role("textbox").first
    box.fill("detention")
    box.press("Enter")
    until(page, "location.hash.includes('s=detention')")
    until(page, "document.querySelector('form .primary').ariaBusy === 'false'")
    until(page, "!document.querySelector('[data-head] small') && !document.querySelector('[data-told]')")
    assert page.locator("[data-bars]").count() == 0
    for route in held:
        route.continue_()
    until(page, "document.querySelectorAll('[data-head] small').length > 0 && document.querySelector('[data-told]')")


def test_a_sweep_that_fails_says_so_and_waits_to_be_asked_again(visit, ids):
    seen = visit(clean=False)
    page = seen.page
    asked = []
    error = {"error": {"code": "busy", "message": "the sweep broke"}}
    page.route("**/api/sweep", lambda route: (asked.append(1), route.fulfill(status=500, json=error)))
    page.goto(f"{seen.address}/#/knockout?m={ids['spelling']}&s={SOURCE}")
    until(page, "document.body.innerText.includes('the sweep broke')")
    seen.wait_until_idle()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert len(asked) == 1
    page.unroute("**/api/sweep")
    page.get_by_role("button", name="Try again").click()
    until(page, "document.querySelectorAll('[data-head] small').length > 0")


def test_a_sweep_of_one_model_is_not_shown_for_another(page, ids):
    until(page, "document.querySelectorAll('[data-head] small').length > 1")
    page.locator("header select").first.select_option(ids["spelling-recurrent"])
    until(page, "document.querySelectorAll('[data-head]').length === 1")
    until(page, "document.querySelectorAll('[data-head] small').length === 1")
    assert page.locator("[data-bars] li").count() == 1
    until(page, "!document.querySelector('main [role=status]')?.innerText.includes('Cutting')")
