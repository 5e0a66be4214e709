"""A page saved to a file explains every number of its tensors, down to the weights."""

import random
import re

import numpy as np
import pytest

from benchmarks.explaining import saved_functions, unlike
from regard.bundle import save
from regard.explore.offline_html import show
from regard.search import Greedy
from regard.trace import Trace, record
from tests.browser.conftest import download_export, until
from tests.browser.drawers import VALUE, drawer
from tests.trace.random_models import random_model
from tests.trace.test_parts import use_own_parts

TEXTS = {
    "english-german": "The dog is sleeping.",
    "english-german-recurrent": "The dog is sleeping.",
    "spelling": "attention",
    "spelling-recurrent": "attention",
}
EDITS = {
    "spelling": [
        {"kind": "ablate", "attention": "dec.0.cross", "head": 1, "by": "mean"},
        {"kind": "temperature", "at": "out", "value": 2.0},
        {"kind": "unmasked", "attention": "dec.1.self"},
    ],
    "spelling-recurrent": [
        {"kind": "temperature", "at": "attn", "value": 0.5},
        {"kind": "row", "attention": "attn", "head": 0, "query": 2, "weights": [0.1] * 10},
    ],
}
TERMS = """rows => rows.map(row => [...row.querySelectorAll('.operand')].map(one =>
  [one.querySelector('code').innerText, one.querySelector('[data-operand]').dataset.operand]))"""


@pytest.fixture(scope="module")
def traces(pipelines) -> dict[str, Trace]:
    return {
        name: record(pipelines[name], text, search=Greedy(), edits=EDITS.get(name, ()))
        for name, text in TEXTS.items()
    }


def shown_terms(page) -> list[list[tuple[str, float]]]:
    rows = page.locator("[data-drawer] tbody tr").evaluate_all(TERMS)
    return [[(name, float(value)) for name, value in row] for row in rows]


def check_drawer(page, trace, name, index) -> list[tuple[str, tuple[int, ...]]]:
    """Compare the drawer with `Trace.explain`; returns the tensors among the operands."""
    place = f"{name}[{','.join(map(str, index))}]" if index else name
    until(page, f"document.querySelector('[data-drawer] .name')?.innerText === {place!r}")
    value, result, _ = drawer(page)
    live = trace.explain(name, index)
    size = max(live.computation.largest, 1e-30)
    assert value == live.value
    assert result == live.result or abs(result - live.result) <= 1e-11 * size
    text = page.locator("[data-drawer]").inner_text()
    assert live.place in text
    assert live.formula in text
    operands = [term.operands for term in live.computation.terms]
    assert shown_terms(page) == [
        [
            (f"{one.name}[{','.join(map(str, one.index))}]" if one.index else one.name, one.value)
            for one in row
        ]
        for row in operands
    ]
    return [(one.name, one.index) for row in operands for one in row if one.name in trace]


def follow(page, trace, name, index) -> int:
    """Click the first operand of each explanation until none is a tensor; count the clicks."""
    clicks = 0
    while found := check_drawer(page, trace, name, index):
        name, index = found[0]
        page.locator("[data-drawer] tbody button.link:not(.weight)").first.click()
        clicks += 1
    return clicks


@pytest.mark.parametrize("model", TEXTS)
def test_saved_numbers_lead_back_to_the_weights(model, traces, offline_page, tmp_path):
    trace, errors = traces[model], []
    offline_page.on("pageerror", lambda error: errors.append(str(error)))
    file = show(trace).save(tmp_path / "saved.html")
    assert file.stat().st_size < 10e6
    attention = "attn" if "attn.weights" in trace else "dec.1.cross"
    offline_page.goto(f"{file.as_uri()}#/attention?a={attention}")
    cell = offline_page.locator(f"[data-heatmap][data-name='{attention}.weights'] [role=gridcell]")
    cell.first.focus()
    offline_page.keyboard.press("ArrowRight")
    offline_page.keyboard.press("Enter")
    until(offline_page, VALUE)
    shown = offline_page.locator("[data-drawer] .name").inner_text()
    index = tuple(map(int, re.findall(r"\d+", shown.rpartition("[")[2])))
    assert follow(offline_page, trace, f"{attention}.weights", index) >= 5
    offline_page.evaluate("location.hash = '#/output?r=1'")
    token = trace.following[1].id
    offline_page.evaluate(f"location.hash = '#/output?r=1&x=out.logprobs,1,{token}'")
    assert follow(offline_page, trace, "out.logprobs", (1, token)) >= 8
    offline_page.evaluate("location.hash = '#/overview?x=out.score'")
    check_drawer(offline_page, trace, "out.score", ())
    assert errors == []


@pytest.mark.parametrize("model", ["english-german", "spelling-recurrent"])
def test_saved_weights_lead_to_their_table(model, traces, offline_page, tmp_path):
    trace = traces[model]
    file = show(trace).save(tmp_path / "saved.html")
    offline_page.goto(f"{file.as_uri()}#/output?x=out.logits,1,7")
    check_drawer(offline_page, trace, "out.logits", (1, 7))
    offline_page.locator("[data-drawer] .weight").nth(3).click()
    offline_page.locator("[data-weight-table] [data-heatmap]").wait_for()
    table = trace.operation("out.logits").weights[0]
    text = offline_page.locator("[data-weight-table]").inner_text()
    assert f"{table}[7,3]" in text
    assert all(name in text for name in trace.names if table in trace.operation(name).weights)
    read = offline_page.locator("[data-weight]").get_attribute
    assert np.float32(read("data-weight")) == trace.numbers[table][7, 3].numpy()
    offline_page.locator("[data-weight-table] [role=gridcell]").focus()
    offline_page.keyboard.press("ArrowDown")
    until(
        offline_page,
        "document.querySelector('[data-weight-table] code').innerText.endsWith('8,3]')",
    )
    assert np.float32(read("data-weight")) == trace.numbers[table][8, 3].numpy()


def test_a_page_saved_by_the_menu_explains_tensors(visit, ids, pipelines, offline_page, tmp_path):
    model, text = "spelling", "attention"
    page = visit().open(f"#/residual?m={ids[model]}&s={text}&x=enc.0.ffn.act,2,5")
    live = drawer(page)
    terms = shown_terms(page)
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    assert drawer(offline_page)[:2] == pytest.approx(live[:2], abs=1e-12)
    assert shown_terms(offline_page) == terms
    trace = record(pipelines[model], text, search=Greedy())
    check_drawer(offline_page, trace, "enc.0.ffn.act", (2, 5))


def test_random_saved_numbers_are_those_of_explain(browser, traces):
    draw, ask = random.Random(26), saved_functions(browser)
    for trace in traces.values():
        names = [draw.choice(trace.names) for _ in range(20)] + trace.names
        cells = [(one, tuple(draw.randrange(size) for size in trace[one].shape)) for one in names]
        for (name, index), saved in zip(cells, ask(trace, cells), strict=True):
            assert list(unlike(saved, trace.explain(name, index).as_dict())) == []


def test_saved_numbers_of_parts_of_users(browser, tmp_path):
    pipeline = random_model("sinusoidal")
    save(tmp_path / "model", pipeline.bundle)
    use_own_parts(pipeline)
    trace = record(pipeline, "zebra", "AH B N")
    cells = [(name, tuple(size - 1 for size in trace[name].shape)) for name in trace.names]
    for (name, index), saved in zip(
        cells, saved_functions(browser)(trace, cells, tmp_path / "model"), strict=True
    ):
        assert list(unlike(saved, trace.explain(name, index).as_dict())) == []


def test_a_smaller_page_says_which_weights_it_lacks(traces, offline_page, tmp_path):
    trace = traces["english-german"]
    file = show(trace, weights_mb=0.2).save(tmp_path / "small.html")
    assert file.stat().st_size < 2.5e6
    offline_page.goto(f"{file.as_uri()}#/attention?x=dec.0.cross.weights,0,1,2")
    check_drawer(offline_page, trace, "dec.0.cross.weights", (0, 1, 2))
    offline_page.evaluate("location.hash = '#/attention?x=src.embed,2,3'")
    check_drawer(offline_page, trace, "src.embed", (2, 3))
    offline_page.evaluate("location.hash = '#/attention?x=dec.0.ffn.hidden,1,2'")
    until(offline_page, "document.querySelector('[data-drawer] [role=alert]') !== null")
    text = offline_page.locator("[data-drawer] [role=alert]").inner_text()
    weight = trace.operation("dec.0.ffn.hidden").weights[0]
    assert f"does not contain {weight} (" in text
    assert "at most 0.20 MB of weights" in text


def test_given_numbers_are_explained_in_a_saved_page(offline_page, tmp_path):
    weights = np.random.default_rng(0).random((2, 3, 4), np.float32)
    source, target = ["a", "b", "c", "</s>"], ["<s>", "x", "y"]
    trace = Trace.from_arrays(source, target, {"dec.0.cross.weights": weights})
    file = show(trace).save(tmp_path / "arrays.html")
    offline_page.goto(f"{file.as_uri()}#/attention?x=dec.0.cross.weights,1,2,3")
    value, result, _ = drawer(offline_page)
    assert value == result == float(weights[1, 2, 3])
    assert shown_terms(offline_page) == [[("given", float(weights[1, 2, 3]))]]
