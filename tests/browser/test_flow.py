"""The Attention page: the head it opens on, and one row as a flow of numbers."""

import math

import numpy as np
import pytest

from regard.search import Greedy
from regard.trace import record
from tests.browser.conftest import until
from tests.browser.head_scores import all_heads
from tests.browser.test_derived_numbers import drawer, explain

SOURCE = "attention"
LONG = "internationalization"
MOVING = ("previous token", "next token", "diagonal", "reverse diagonal")
FLOW = "document.querySelector('[data-flow] [data-cell]') !== null"
CELLS = """Object.fromEntries([...document.querySelectorAll('[data-flow] [data-cell]')].map(
  node => [node.dataset.cell, node.ariaLabel.split(': ').pop()]))"""
VECTORS = """Object.fromEntries([...document.querySelectorAll('[data-vector]')].map(node =>
  [node.dataset.vector, [...node.querySelectorAll('button')].map(
    cell => cell.ariaLabel.split(': ').pop())]))"""


def number(text: str) -> float:
    return -math.inf if text == "−∞" else float(text.replace("−", "-"))


def table(page) -> dict[str, dict[int, float]]:
    """The numbers of the table by stage and key."""
    until(page, FLOW)
    found: dict[str, dict[int, float]] = {}
    for place, text in page.evaluate(CELLS).items():
        stage, key = place.split(",")
        found.setdefault(stage, {})[int(key)] = number(text)
    return found


def vectors(page) -> dict[str, list[float]]:
    """All dimensions of the vectors of the flow by their symbols."""
    until(page, FLOW)
    if page.get_by_role("button", name="Show all").count():
        page.get_by_role("button", name="Show all").first.click()
        until(page, "document.body.innerText.includes('Show fewer dimensions')")
    return {name: [number(one) for one in row] for name, row in page.evaluate(VECTORS).items()}


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


@pytest.fixture(scope="module")
def traces(pipelines):
    return {
        name: record(pipelines[name], SOURCE, search=Greedy())
        for name in ("spelling", "spelling-recurrent")
    }


@pytest.mark.parametrize("model", ["spelling", "spelling-recurrent"])
def test_page_opens_on_an_instructive_head(visit, ids, traces, model):
    heads = all_heads(traces[model])
    moving = {id: score for id, (name, score) in heads.items() if name in MOVING and score >= 0.5}
    attention, head = max(moving, key=lambda id: moving[id]).rsplit(".", 1)
    page = visit().open(f"#/attention?m={ids[model]}&s={SOURCE}")
    until(page, f"location.hash.includes('a={attention}')")
    assert page.get_by_role("radio", checked=True).inner_text() == head
    weights = traces[model][f"{attention}.weights"][int(head)].numpy()
    query = (len(weights) - 1) // 2
    key = int(weights[query].argmax())
    assert f"&i={query}&j={key}" in page.url
    line = page.locator("main p[data-pattern]").inner_text()
    name, score = heads[f"{attention}.{head}"]
    assert line.startswith(f"{attention}, head {head}: {name}")
    assert number(line.split()[-1]) == pytest.approx(score, abs=0.0051)
    _, result, _ = explain(page, f"score of {name}, layer {attention[4:5] or 0}, head {head}")
    assert result == pytest.approx(score, abs=1e-9)


def test_selected_head_is_kept(visit, ids):
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=enc.0.self")
    until(page, FLOW)
    assert page.locator("main select").first.input_value() == "enc.0.self"
    assert page.get_by_role("radio", checked=True).inner_text() == "0"
    page.locator("main select").first.select_option("dec.0.self")
    page.locator("main select").first.select_option("enc.0.self")
    until(page, "location.hash.includes('a=enc.0.self')")  # it stays selected when reloaded


def test_flow_of_a_row_is_the_computation(visit, ids, traces):
    trace, head, query, key = traces["spelling"], 0, 4, 6
    q, k, v = (trace[f"dec.1.cross.{name}"][head].double().numpy() for name in "qkv")
    page = visit().open(
        f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.1.cross&h={head}&i={query}&j={key}"
    )
    found = table(page)
    dots = k @ q[query]
    scores = dots / math.sqrt(len(q[query]))
    weights = softmax(scores)
    assert list(found) == ["dots", "scores", "weights"]  # nothing is masked: no such stage
    for stage, expected in (("dots", dots), ("scores", scores), ("weights", weights)):
        assert len(found[stage]) == len(k)
        shown = [found[stage][at] for at in range(len(k))]
        assert shown == pytest.approx(expected.tolist(), rel=0.05, abs=6e-5)
    shown = vectors(page)
    for symbol, expected in (
        ("q", q[query]),
        ("k", k[key]),
        ("v", v[key]),
        ("Σ w v", weights @ v),
    ):
        assert shown[symbol] == pytest.approx(expected.tolist(), rel=0.05, abs=6e-5)


def test_flow_numbers_open_their_explanation(visit, ids, traces):
    weights = traces["spelling"]["dec.1.cross.weights"][0, 4]
    context = traces["spelling"]["dec.1.cross.context"][0, 4]
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.1.cross&i=4&j=6")
    until(page, FLOW)
    page.locator("[data-cell='weights,6']").click()
    assert drawer(page)[0] == pytest.approx(float(weights[6]), rel=1e-6)
    page.locator("[data-cell='dots,2']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[data-drawer]').innerText.includes('scale')")
    scores = traces["spelling"]["dec.1.cross.scores"][0, 4]
    assert drawer(page)[0] == pytest.approx(float(scores[3]), rel=1e-6)
    page.locator("[data-vector='Σ w v'] button").nth(1).click()
    until(page, "document.querySelector('[data-drawer]').innerText.includes('context')")
    assert drawer(page)[0] == pytest.approx(float(context[1]), rel=1e-6)


def test_masked_keys_of_the_flow(visit, ids, traces):
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.0.self&i=2")
    found = table(page)
    hidden = [key for key, score in found["masked"].items() if score == -math.inf]
    assert hidden == list(range(3, len(traces["spelling"].target)))
    assert [found["weights"][key] for key in hidden] == [0] * len(hidden)
    texts = [
        page.locator(f"[data-cell='{stage},5']").inner_text() for stage in ("masked", "weights")
    ]
    assert texts == ["−∞", "0"]


def test_flow_of_a_bahdanau_model(visit, ids, traces, pipelines):
    trace, query, key = traces["spelling-recurrent"], 3, 5
    asks, keys, values = (
        trace[f"attn.{name}"][0].double().numpy() for name in ("query", "key", "value")
    )
    parameters = dict(pipelines["spelling-recurrent"].model.named_parameters())
    weigher = next(name for name in trace.origin("attn.energy").weights)
    v = parameters[weigher].detach().double().numpy().reshape(-1)
    page = visit().open(f"#/attention?m={ids['spelling-recurrent']}&s={SOURCE}&i={query}&j={key}")
    found = table(page)
    energies = np.tanh(asks[query] + keys) @ v
    weights = softmax(energies)
    assert list(found) == ["energy", "weights"]
    assert list(found["energy"].values()) == pytest.approx(energies.tolist(), rel=0.05, abs=6e-5)
    assert list(found["weights"].values()) == pytest.approx(weights.tolist(), rel=0.05, abs=6e-5)
    shown = vectors(page)
    bent = np.tanh(asks[query] + keys[key])
    assert shown["tanh(q + k)"] == pytest.approx(bent.tolist(), rel=0.05, abs=6e-5)
    assert shown["Σ w v"] == pytest.approx((weights @ values).tolist(), rel=0.05, abs=6e-5)
    page.locator("[data-vector='tanh(q + k)'] button").nth(4).click()
    value, result, terms = drawer(page)
    assert terms == pytest.approx([asks[query][4], keys[key][4]], rel=1e-6)
    assert (value, result) == (pytest.approx(bent[4], rel=1e-6),) * 2
    assert "W s" in page.locator("[data-flow]").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_flow_of_a_long_text_shows_its_largest_weights(visit, ids, pipelines, width):
    trace = record(pipelines["spelling"], LONG, search=Greedy())
    weights = trace["dec.1.cross.weights"][1, 3].double().numpy()
    largest = sorted(np.argsort(-weights)[:12].tolist())
    key = largest[0]
    page = visit(width=width).open(
        f"#/attention?m={ids['spelling']}&s={LONG}&a=dec.1.cross&h=1&i=3&j={key}"
    )
    assert list(table(page)["weights"]) == largest
    rest = len(weights) - len(largest)
    _, result, terms = explain(page, f"weights of the other {rest} keys")
    assert result == pytest.approx(1 - weights[largest].sum(), abs=1e-6)
    assert len(terms) == rest
    page.get_by_role("button", name=f"Show all {len(weights)} keys").click()
    assert len(table(page)["weights"]) == len(weights)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
