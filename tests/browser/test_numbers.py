"""The numbers on the page are the model's: pixels, explanations, links and files."""

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
from tests.browser.conftest import download_export, until, wait_until_idle

ROOT = Path(__file__).parents[2]
PALETTE = json.loads((ROOT / "src/regard/plots/palette.json").read_text())
SOURCE = "attention"
PAGES = [
    *("overview", "tokens", "embedding", "heads", "alignment"),
    *("residual", "output", "decode", "ablation"),
]
ATTENTIONS = {"spelling": "dec.1.cross", "spelling-recurrent": "attn"}


@pytest.fixture(scope="module")
def traces(pipelines) -> dict[str, Trace]:
    return {name: record(one, SOURCE, search=Greedy()) for name, one in pipelines.items()}


def level(colour: tuple[int, ...], ramp: list[list[int]]) -> int:
    """The step of a ramp that is nearest to a colour."""
    distances = np.abs(np.array(ramp) - np.array(colour[:3])).sum(1)
    assert distances.min() <= 3, f"{colour} is not in the palette"
    return int(distances.argmin())


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("model", ATTENTIONS)
def test_pixels_show_the_numbers_of_the_tensor(visit, ids, traces, model, theme):
    visited = visit(theme=theme)
    attention = ATTENTIONS[model]
    page = visited.open(f"#/attention?m={ids[model]}&s={SOURCE}&a={attention}")
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
        ramp = PALETTE[
            "weights"
            if data["kind"] == "weights"
            else "signed"
            if theme == "light"
            else "signed_dark"
        ]
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
        ("spelling", "enc.0.self.q.rotated", (1, 2, 5)),
        ("spelling", "dec.2.norm3", (1, 17)),
        ("spelling", "out.logprobs", (2, 7)),
        ("spelling-recurrent", "attn.energy", (0, 2, 3)),
        ("spelling-recurrent", "dec.0.n", (3, 11)),
    ],
)
def test_explanation_shows_the_right_numbers(visit, ids, traces, model, tensor, index):
    expected = traces[model].explain(tensor, index).as_dict()
    place = ",".join(map(str, index))
    page = visit().open(f"#/attention?m={ids[model]}&s={SOURCE}&x={tensor},{place}")
    drawer = page.locator("[data-drawer]")
    drawer.locator("[data-value]").wait_for()
    for name, tolerance in (("value", 1e-6), ("result", 1e-9)):
        shown = drawer.locator(f"[data-{name}]").get_attribute(f"data-{name}")
        assert float(shown) == pytest.approx(expected[name], rel=tolerance)
    assert expected["place"] in drawer.inner_text()
    assert expected["formula"] in drawer.inner_text()
    rows = drawer.locator("tbody tr")
    if (more := drawer.locator("[data-all-lines]")).count():  # long sums show their first lines
        more.click()
    assert rows.count() == len(expected["rows"])
    for line, (cells, names, values) in zip(expected["rows"], rows.evaluate_all(READ), strict=True):
        wanted = [*line["numbers"], *([] if line["running"] is None else [line["running"]])]
        assert [number(cell) for cell in cells] == pytest.approx(
            [float(one) for one in wanted], rel=5e-2, abs=5e-5
        )
        assert names == [_name(operand) for operand in line["operands"]]
        assert values == [
            pytest.approx(float(operand["value"]), rel=1e-6) for operand in line["operands"]
        ]


READ = """rows => rows.map(row => [
  [...row.querySelectorAll("td")].map(cell => cell.innerText),
  [...row.querySelectorAll("th code")].map(code => code.textContent),
  [...row.querySelectorAll("[data-operand]")].map(node => +node.dataset.operand),
])"""


def _name(operand: dict) -> str:
    place = "" if operand["kind"] == "constant" else f"[{','.join(map(str, operand['index']))}]"
    return operand["name"] + place


def number(text: str) -> float:
    """Parses a number of the page."""
    return float(
        text.replace("−", "-")
        .replace("∞", "inf")
        .replace(" ", "")
        .replace("·10", "e")
        .replace(",", "")
    )


def test_operands_open_their_own_explanation(visit, ids):
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
        "attention?m={spelling}&s=tension&e=unscaled;ablate~dec.0.cross~1~zero&a=dec.0.cross",
        "output?m={spelling-recurrent}&s=tension&t=T+EH+N&r=2&theme=dark",
        "heads?m={spelling}&s=a%3Cb%3Ebold%3C%2Fb%3E&d=3",
    ],
)
def test_links_survive_a_reload(visit, ids, rest):
    link = "#/" + re.sub(r"{([\w-]+)}", lambda found: ids[found[1]], rest)
    visited = visit()
    page = visited.open(link)
    assert page.url.split("/#", 1)[1] == link[1:]
    page.reload()
    visited.wait_until_idle()
    assert page.url.split("/#", 1)[1] == link[1:]
    assert page.locator("b", has_text="bold").count() == 0, "text of the address was parsed as HTML"


@pytest.mark.parametrize("model", ATTENTIONS)
def test_exports_contain_the_numbers(visit, ids, traces, model):
    page = visit().open(f"#/attention?m={ids[model]}&s={SOURCE}&a={ATTENTIONS[model]}")
    trace, name = traces[model], f"{ATTENTIONS[model]}.weights"
    tensors = load(download_export(page, "safetensors"))
    assert set(tensors) == set(trace.names)
    np.testing.assert_allclose(tensors[name], trace[name].numpy(), atol=1e-6)
    with np.load(io.BytesIO(download_export(page, "npz"))) as arrays:
        np.testing.assert_allclose(arrays[name], trace[name].numpy(), atol=1e-6)
    exported = json.loads(download_export(page, "JSON"))
    assert exported["trace"]["output"]["text"] == trace.answer.text


@pytest.mark.parametrize("model", ATTENTIONS)
def test_view_saves_csv_png_and_svg(visit, ids, traces, model):
    name = f"{ATTENTIONS[model]}.weights"
    page = visit().open(f"#/attention?m={ids[model]}&s={SOURCE}&a={ATTENTIONS[model]}")
    view = page.locator("figure", has=page.locator(f"[data-heatmap][data-name='{name}']"))

    def save(label: str) -> bytes:
        view.get_by_role("button", name=re.compile("^Save")).first.click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=re.compile(label)).first.click()
        return Path(download.value.path()).read_bytes()

    rows = list(csv.reader(io.StringIO(save("CSV").decode("utf-8-sig"))))
    tensor = traces[model][name][0].numpy()
    table = [row for row in rows if len(row) == tensor.shape[1] + 1][-len(tensor) :]
    np.testing.assert_allclose(
        [[float(cell) for cell in row[1:]] for row in table], tensor, atol=1e-6
    )
    picture = Image.open(io.BytesIO(save("PNG"))).convert("RGB")
    brightest = PALETTE["weights"][round(float(tensor.max()) * 255)]
    assert (
        min(
            abs(r - brightest[0]) + abs(g - brightest[1]) + abs(b - brightest[2])
            for _, (r, g, b) in picture.getcolors(1 << 24)
        )
        <= 6
    )
    drawn = ElementTree.fromstring(save("SVG"))
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}rect")) >= tensor.size


def test_saved_page_works_without_a_server(visit, ids, traces, offline_page, tmp_path):
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a=dec.1.cross")
    file = tmp_path / "saved.html"
    file.write_bytes(download_export(page, "HTML"))
    data = re.search(r'id="offline-data"[^>]*>(.*?)</script>', file.read_text(), re.S)
    assert data
    tensors = load(base64.b64decode(json.loads(data[1])["tensors"]))
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
        until(
            offline_page, f"document.querySelector('nav [aria-current=page]').hash === '#/{name}'"
        )
        wait_until_idle(offline_page)
        assert offline_page.locator("[role=alert]").count() == 0, name
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert errors == []
