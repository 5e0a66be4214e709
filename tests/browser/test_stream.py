"""The residual stream is drawn with widths that are its norms; every number is explained."""

import re

import pytest

from regard.search import Greedy
from regard.trace import record
from tests.browser.conftest import until
from tests.browser.drawers import drawer

SOURCE = "attention"
WIDTHS = """() => {
  const [stream, ...flows] = [...document.querySelectorAll('[data-stream] polygon')].map(
    shape => shape.getAttribute('points').split(' ').map(point => point.split(',').map(Number)));
  const rows = document.querySelectorAll('[data-step]').length;
  const half = stream.length / 2, each = half / rows;
  return {
    stream: [...Array(rows).keys()].map(k => {
      const at = (k + 1) * each - 1;
      return stream[at][0] - stream[stream.length - 1 - at][0];
    }),
    flows: flows.map(flow => flow[flow.length - 1][1] - flow[0][1]),
  };
}"""


@pytest.fixture(scope="module")
def trace(pipelines):
    return record(pipelines["spelling"], SOURCE, search=Greedy())


@pytest.fixture
def page(visit, ids):
    opened = visit().open(f"#/residual?m={ids['spelling']}&s={SOURCE}&o.side=target&r=3")
    until(opened, "document.querySelectorAll('[data-stream] polygon').length > 1")
    return opened


def test_widths_are_proportional_to_norms(page, trace):
    names = page.locator("[data-step]").evaluate_all("all => all.map(one => one.dataset.step)")
    norms = [float(trace[name][3].double().norm()) for name in names]
    drawn = page.evaluate(WIDTHS)
    scale = drawn["stream"][-1] / norms[-1]
    assert drawn["stream"] == pytest.approx([max(2, scale * norm) for norm in norms], rel=1e-3)
    added = [trace.origin(name).inputs[1] for name in names[1:]]
    flows = [float(trace[name][3].double().norm()) for name in added]
    assert drawn["flows"] == pytest.approx([max(1.5, scale * one) for one in flows], rel=1e-3)


def test_the_numbers_of_a_row_are_explained(page, trace):
    page.get_by_role(
        "button", name=re.compile("Explain contribution, norm: Cross-attention, layer 1$")
    ).click()
    vector = trace["dec.1.cross.out"][3].double()
    value, result, sizes = drawer(page)
    assert result == pytest.approx(float(vector.norm()), rel=1e-9)
    assert value == pytest.approx(result, rel=1e-5)
    assert sizes == pytest.approx((vector**2).tolist(), rel=1e-9)


def test_arrow_keys_move_along_the_stream(page):
    page.locator("[data-step]").first.focus()
    page.keyboard.press("ArrowDown")
    until(page, "location.hash.includes('o.step=')")
    assert page.evaluate("document.activeElement.dataset.step") == "dec.0.resid1"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.ariaCurrent") == "true"


def test_a_recurrent_model_keeps_its_states(visit, ids):
    page = visit().open(f"#/residual?m={ids['spelling-recurrent']}&s={SOURCE}")
    until(page, "document.querySelector('[data-view=\"stream.chart\"] li') !== null")
    assert page.locator("[data-stream]").count() == 0
