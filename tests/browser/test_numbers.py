"""What the page shows are the model's numbers: pixels, drawers, links and files, each held to Python."""

import base64
import csv
import io
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load

from regard.search import Greedy
from regard.trace import Trace, record
from tests.browser.conftest import IDLE, download_export, until

ROOT = Path(__file__).parents[2]
PALETTE = json.loads((ROOT / "src/regard/plots/palette.json").read_text())
SOURCE = "attention"
PAGES = ["overview", "tokens", "embedding", "heads", "alignment", "walk", "output", "decode", "knockout"]
LABS = {"spelling": "dec.1.cross", "spelling-recurrent": "attn"}


@pytest.fixture(scope="module")
def traces(pipelines) -> dict[str, Trace]:
    return {name: record(one, SOURCE, search=Greedy()) for name, one in pipelines.items()}


def level(colour: tuple[int, ...], ramp: list[list[int]]) -> int:
    """The step of a ramp that is nearest to a colour."""
    distances = np.abs(np.array(ramp) - np.array(colour[:3])).sum(1)
    assert distances.min() <= 3, f"{colour} is no colour of the palette"
    return int(distances.argmin())


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("model", LABS)
def test_pixels_are_the_tensors_numbers(visit, ids, traces, model, theme):
    seen = visit(theme=theme)
    attention = LABS[model]
    page = seen.open(f"#/attention?m={ids[model]}&s={SOURCE}&a={attention}")
    maps = page.locator(f"[data-heatmap][data-name^='{attention}.']")
    kinds = set()
    for at in range(maps.count()):
        data = maps.nth(at).evaluate("node => ({...node.dataset})")
        name = data["name"]
        tensor = traces[model][name][0].numpy()
        if data["kind"] not in ("weights", "signed", "masked") or tensor.shape != (
            int(data["rows"]),
            int(data["cols"]),
        ):
            continue
        maps.nth(at).scroll_into_view_if_needed()
        picture = Image.open(io.BytesIO(maps.nth(at).locator("canvas").screenshot())).convert("RGB")
        ramp = PALETTE["weights" if data["kind"] == "weights" else "signed" if theme == "light" else "signed_dark"]
        for i, j in ((0, 0), (2, 3), (tensor.shape[0] - 1, tensor.shape[1] - 1)):
            if not math.isfinite(tensor[i, j]):
                continue
            x = float(data["left"]) + j * float(data["cellWidth"]) + float(data["sampleX"])
            y = float(data["top"]) + i * float(data["cellHeight"]) + float(data["sampleY"])
            share = level(picture.getpixel((int(x), int(y))), ramp) / (len(ramp) - 1)
            limit = float(data["limit"])
            shown = share if data["kind"] == "weights" else (2 * share - 1) * limit
            step = 1 / 255 if data["kind"] == "weights" else 2 * limit / (len(ramp) - 1)
            assert shown == pytest.approx(tensor[i, j], abs=1.5 * step), f"{name}[{i}, {j}]"
            kinds.add(data["kind"])
    assert "weights" in kinds


@pytest.mark.parametrize(
    ("model", "tensor", "index"),
    [
        ("spelling", "dec.1.cross.weights", (2, 3, 4)),
        ("spelling", "enc.0.self.q.turned", (1, 2, 5)),
        ("spelling", "dec.2.norm3", (1, 17)),
        ("spelling", "out.logprobs", (2, 7)),
        ("spelling-recurrent", "attn.energy", (0, 2, 3)),
        ("spelling-recurrent", "dec.0.n", (3, 11)),
    ],
)
def test_every_number_of_a_drawer_is_right(visit, ids, traces, model, tensor, index):
    told = traces[model].explain(tensor, index).as_dict()
    place = ",".join(map(str, index))
    page = visit().open(f"#/attention?m={ids[model]}&s={SOURCE}&x={tensor},{place}")
    drawer = page.locator("[data-drawer]")
    drawer.locator("[data-value]").wait_for()
    assert float(drawer.locator("[data-value]").get_attribute("data-value")) == pytest.approx(told["value"], rel=1e-6)
    assert float(drawer.locator("[data-result]").get_attribute("data-result")) == pytest.approx(
        told["result"], rel=1e-9
    )
    assert told["place"] in drawer.inner_text()
    assert told["formula"] in drawer.inner_text()
    rows = drawer.locator("tbody tr")
    if (more := drawer.locator("[data-all-lines]")).count():  # of a long sum the first lines come at once
        more.click()
    assert rows.count() == len(told["rows"])
    for line, (cells, named, values) in zip(told["rows"], rows.evaluate_all(READ), strict=True):
        wanted = [*line["numbers"], *([] if line["running"] is None else [line["running"]])]
        assert [number(cell) for cell in cells] == pytest.approx([float(one) for one in wanted], rel=5e-2, abs=5e-5)
        assert named == [_called(operand) for operand in line["operands"]]
        assert values == [pytest.approx(float(operand["value"]), rel=1e-6) for operand in line["operands"]]


READ = """rows => rows.map(row => [
  [...row.querySelectorAll("td")].map(cell => cell.innerText),
  [...row.querySelectorAll("th code")].map(code => code.textContent),
  [...row.querySelectorAll("[data-operand]")].map(node => +node.dataset.operand),
])"""


def _called(operand: dict) -> str:
    place = "" if operand["kind"] == "constant" else f"[{','.join(map(str, operand['index']))}]"
    return operand["name"] + place


def number(text: str) -> float:
    """A number as the page writes it."""
    return float(text.replace("−", "-").replace("∞", "inf").replace(" ", "").replace("·10", "e").replace(",", ""))


def test_operands_lead_on_and_back(visit, ids):
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&x=dec.1.cross.weights,2,3,4")
    drawer = page.locator("[data-drawer]")
    drawer.locator("tbody button").first.click()
    drawer.locator("text=dec.1.cross.masked[2,3,0]").first.wait_for()
    drawer.locator("nav button").first.click()
    drawer.locator("[data-value]").wait_for()
    until(page, "location.hash.includes('x=dec.1.cross.weights,2,3,4')")
    assert drawer.locator("[data-value]").count() == 1


@pytest.mark.parametrize(
    "rest",
    [
        "attention?m={spelling}&s=tension&a=enc.1.self&h=2&i=3&j=1",
        "attention?m={spelling}&s=tension&e=unscaled;cut~dec.0.cross~1~zero&a=dec.0.cross",
        "output?m={spelling-recurrent}&s=tension&t=T+EH+N&r=2&theme=dark",
        "heads?m={spelling}&s=a%3Cb%3Ebold%3C%2Fb%3E&d=3",
    ],
)
def test_a_link_is_a_state_is_the_same_link(visit, ids, rest):
    link = "#/" + re.sub(r"{([\w-]+)}", lambda found: ids[found[1]], rest)
    seen = visit()
    page = seen.open(link)
    assert page.url.split("/#", 1)[1] == link[1:]
    page.reload()
    seen.wait_until_idle()
    assert page.url.split("/#", 1)[1] == link[1:]
    assert page.locator("b", has_text="bold").count() == 0, "text of the address became HTML"


@pytest.mark.parametrize("model", LABS)
def test_exports_hold_the_numbers(visit, ids, traces, model):
    page = visit().open(f"#/attention?m={ids[model]}&s={SOURCE}&a={LABS[model]}")
    trace, name = traces[model], f"{LABS[model]}.weights"
    tensors = load(download_export(page, "safetensors"))
    assert set(tensors) == set(trace.names)
    np.testing.assert_allclose(tensors[name], trace[name].numpy(), atol=1e-6)
    with np.load(io.BytesIO(download_export(page, "npz"))) as arrays:
        np.testing.assert_allclose(arrays[name], trace[name].numpy(), atol=1e-6)
    told = json.loads(download_export(page, "JSON"))
    assert told["trace"]["output"]["text"] == trace.answer.text


@pytest.mark.parametrize("model", LABS)
def test_a_view_saves_its_numbers_and_its_picture(visit, ids, traces, model):
    name = f"{LABS[model]}.weights"
    page = visit().open(f"#/attention?m={ids[model]}&s={SOURCE}&a={LABS[model]}")
    view = page.locator("figure", has=page.locator(f"[data-heatmap][data-name='{name}']"))

    def saved(label: str) -> bytes:
        view.get_by_role("button", name=re.compile("^Save")).first.click()
        with page.expect_download() as coming:
            page.get_by_role("menuitem", name=re.compile(label)).first.click()
        return Path(coming.value.path()).read_bytes()

    rows = list(csv.reader(io.StringIO(saved("CSV").decode("utf-8-sig"))))
    tensor = traces[model][name][0].numpy()
    table = [row for row in rows if len(row) == tensor.shape[1] + 1][-len(tensor) :]
    np.testing.assert_allclose([[float(cell) for cell in row[1:]] for row in table], tensor, atol=1e-6)
    picture = Image.open(io.BytesIO(saved("PNG"))).convert("RGB")
    brightest = PALETTE["weights"][round(float(tensor.max()) * 255)]
    assert (
        min(
            abs(r - brightest[0]) + abs(g - brightest[1]) + abs(b - brightest[2])
            for _, (r, g, b) in picture.getcolors(1 << 24)
        )
        <= 6
    )
    drawn = ElementTree.fromstring(saved("SVG"))
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}rect")) >= tensor.size


def test_a_saved_page_shows_the_same_without_a_server(visit, ids, traces, offline_page, tmp_path):
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.1.cross")
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    held = re.search(r'id="frozen"[^>]*>(.*?)</script>', file.read_text(), re.S)
    assert held
    tensors = load(base64.b64decode(json.loads(held[1])["tensors"]))
    np.testing.assert_allclose(
        tensors["dec.1.cross.weights"], traces["spelling"]["dec.1.cross.weights"].numpy(), atol=1e-6
    )
    requests, errors = [], []
    offline_page.on("request", lambda request: requests.append(request.url))
    offline_page.on("pageerror", lambda error: errors.append(str(error)))
    offline_page.goto(file.as_uri())
    offline_page.locator("[data-heatmap][data-name='dec.1.cross.weights']").wait_for()
    for name in PAGES:
        offline_page.evaluate(f"location.hash = '#/{name}'")
        until(offline_page, f"document.querySelector('nav [aria-current=page]').hash === '#/{name}'")
        until(offline_page, IDLE)
        assert offline_page.locator("[role=alert]").count() == 0, name
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert errors == []
