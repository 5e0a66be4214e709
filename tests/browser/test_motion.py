"""Motion: blocks light up in the order of computation, stages appear in turn; none if reduced."""

import json
from urllib.request import Request, urlopen

import pytest

from tests.browser.conftest import TIMEOUT, until

SOURCE = "attention"
WATCH = """() => {
  window.lit = [];
  const look = () => {
    const id = document.querySelector('.block.computing')?.dataset.block;
    if (id && id !== window.lit[window.lit.length - 1]) window.lit.push(id);
  };
  new MutationObserver(look).observe(document.querySelector('main'),
    {subtree: true, attributes: true, attributeFilter: ['class']});
}"""
STAGES = """[...document.querySelectorAll('[data-flow] tbody tr:first-child td')].map(cell =>
  cell.getAnimations().map(one => one.effect.getTiming().delay))"""


def described(address: str, model: str) -> tuple[list[dict], list[dict]]:
    """The blocks of a model and the tensors of a trace, as the server describes them."""
    with urlopen(f"{address}/api/models/{model}/graph", timeout=TIMEOUT) as response:
        blocks = json.load(response)["blocks"]
    body = json.dumps({"model": model, "source": "detention"}).encode()
    request = Request(f"{address}/api/trace", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT) as response:
        return blocks, json.load(response)["tensors"]


def press_run(page) -> None:
    page.evaluate(WATCH)
    page.get_by_role("textbox").first.fill("detention")
    page.get_by_role("button", name="Run", exact=True).click()


@pytest.mark.parametrize("model", ["spelling", "spelling-recurrent"])
def test_blocks_light_up_in_the_order_of_computation(visit, ids, address, model):
    blocks, tensors = described(address, ids[model])
    page = visit(motion="no-preference").open(f"#/overview?m={ids[model]}&s={SOURCE}")
    press_run(page)
    until(page, f"window.lit.length >= {len(blocks)} && !document.querySelector('.computing')")
    lit = page.evaluate("window.lit")
    assert sorted(lit) == sorted(block["id"] for block in blocks)
    owner = {name: block["id"] for block in blocks for name in block["names"]}
    edges = {
        (owner[source], owner[tensor["name"]])
        for tensor in tensors
        for source in tensor["inputs"]
        if source in owner and tensor["name"] in owner
    }
    back = [(a, b) for a, b in edges if lit.index(a) > lit.index(b)]
    if model == "spelling":
        assert back == []
    else:  # only the state of the step before, which feeds the next one
        assert {a for a, _ in back} <= {block["id"] for block in blocks if block["layer"] == 0}
    assert page.locator(".block.waiting").count() == 0


def test_only_run_lights_up_blocks(visit, ids):
    visited = visit(motion="no-preference")
    page = visited.open(f"#/overview?m={ids['spelling']}&s={SOURCE}&e=unscaled")
    page.evaluate(WATCH)
    page.locator(".chip").get_by_role("button").click()  # the model runs again without the edit
    until(page, "!location.hash.includes('unscaled')")
    visited.wait_until_idle()
    assert page.evaluate("window.lit") == []


def test_blocks_do_not_light_up_with_reduced_motion(visit, ids):
    visited = visit()
    page = visited.open(f"#/overview?m={ids['spelling']}&s={SOURCE}")
    press_run(page)
    until(page, "location.hash.includes('detention')")
    visited.wait_until_idle()
    assert page.evaluate("window.lit") == []


def test_stages_of_the_flow_appear_in_turn(visit, ids):
    view = f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.1.cross&i=4"
    page = visit(motion="no-preference").open(view)
    until(page, "document.querySelector('[data-flow] [data-cell]') !== null")
    page.locator("main ol button").nth(2).click()  # another row: its stages appear again
    delays = [delay for (delay,) in page.evaluate(STAGES)]
    assert len(delays) == 4  # dot products, scores, weights, values
    assert delays == sorted(set(delays))
    still = visit().open(view)
    until(still, "document.querySelector('[data-flow] [data-cell]') !== null")
    still.locator("main ol button").nth(2).click()
    assert still.evaluate(STAGES) == [[]] * 4
