"""Live temperature, top-k and top-p on the Output page, against `regard.search.Sampling`."""

import json
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.search import Greedy, Sampling
from regard.trace import record
from tests.browser.conftest import Visit, download_export, explorer, new_context, until
from tests.browser.drawers import drawer
from tests.explore.helpers import SOURCE as LETTERS
from tests.explore.helpers import save_large_bundle

SOURCE = "attention"
ROW = 4
READ = """() => [...document.querySelectorAll('[data-token]')].map(row => ({
  id: +row.dataset.token, state: row.dataset.state,
  cells: [...row.querySelectorAll('[data-cell]')].map(cell => [+cell.dataset.low,
                                                               +cell.dataset.high]),
}))"""
SETTINGS = [(1.0, None, 1.0), (2.0, None, 0.9), (0.5, 3, 1.0), (1.7, 6, 0.8), (3.0, 2, 0.99)]


def address(temperature: float, top_k: int | None, top_p: float) -> str:
    return f"&o.temp={temperature}&o.topk={top_k or ''}&o.topp={top_p}"


def expected(logits, temperature: float, top_k: int | None, top_p: float):
    """Ids by falling probability, softmax(z / T), the sum before each, and what is drawn."""
    z = np.asarray(logits, dtype=np.float64) / temperature
    shares = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    order = np.argsort(-shares, kind="stable")
    shares = shares[order]
    before = shares.cumsum() - shares
    stays = before < top_p if top_p < 1 else np.ones(len(z), dtype=bool)
    if top_k is not None:
        stays[top_k:] = False
    stays[0] = True
    return order, shares, before, np.where(stays, shares, 0) / shares[stays].sum()


@pytest.fixture(scope="module")
def logits(pipelines):
    return record(pipelines["spelling"], SOURCE, search=Greedy())["out.logits"][ROW]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_distribution_is_that_of_the_search(visit, ids, logits, settings):
    page = visit().open(f"#/output?m={ids['spelling']}&s={SOURCE}&r={ROW}{address(*settings)}")
    until(page, "document.querySelector('[data-exact=true]') !== null")
    order, *columns = expected(logits, *settings)
    rows = page.evaluate(READ)
    assert [row["id"] for row in rows] == order[: len(rows)].tolist()
    for k, row in enumerate(rows):
        for (low, high), numbers in zip(row["cells"], columns, strict=True):
            assert low == pytest.approx(numbers[k], abs=1e-6)
            assert high == pytest.approx(numbers[k], abs=1e-6)
    temperature, top_k, top_p = settings
    search = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    sharp = (logits[None] / temperature).log_softmax(-1).sort(descending=True).values
    kept = int(search._stay(sharp)[0])
    assert page.evaluate("+document.querySelector('[data-kept]').dataset.kept") == kept
    assert [row["state"] for row in rows] == [
        "kept" if k < kept else "cut" for k in range(len(rows))
    ]


def test_a_slider_redraws_at_once_and_is_in_the_address(visit, ids, logits):
    page = visit().open(f"#/output?m={ids['spelling']}&s={SOURCE}&r={ROW}")
    until(page, "document.querySelector('[data-exact=true]') !== null")
    page.locator("[data-slider=topk]").focus()
    page.keyboard.press("Home")  # k = 1
    until(page, "document.querySelector('[data-kept]').dataset.kept === '1'")
    assert page.evaluate(READ)[0]["cells"][2] == [1, 1]
    page.locator("[data-number=temp]").fill("2")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('o.temp=2')")
    _, shares, *_ = expected(logits, 2.0, 1, 1.0)
    assert page.evaluate(READ)[0]["cells"][0][0] == pytest.approx(shares[0], abs=1e-6)
    page.get_by_role("button", name="Reset").click()
    until(page, "!location.hash.includes('o.temp') && !location.hash.includes('o.topk')")


def test_every_number_opens_its_arithmetic(visit, ids, logits):
    settings = (1.7, 6, 0.95)
    page = visit().open(f"#/output?m={ids['spelling']}&s={SOURCE}&r={ROW}{address(*settings)}")
    until(page, "document.querySelector('[data-exact=true]') !== null")
    _, shares, before, final = expected(logits, *settings)
    page.locator("[data-token]").nth(2).locator("[data-cell]").nth(0).click()
    value, result, sizes = drawer(page)
    assert (value, result) == (pytest.approx(shares[2], abs=1e-9),) * 2
    z = np.sort(np.asarray(logits, dtype=np.float64))[::-1] / 1.7
    assert sizes == pytest.approx(np.exp(z - z[0]).tolist(), abs=1e-9)
    page.keyboard.press("Escape")
    page.locator("[data-token]").nth(2).locator("[data-cell]").nth(1).click()
    value, result, sizes = drawer(page)
    assert (value, result) == (pytest.approx(before[2], abs=1e-9),) * 2
    assert sizes == pytest.approx(shares[:2].tolist(), abs=1e-9)
    page.keyboard.press("Escape")
    page.locator("[data-token]").nth(2).locator("[data-cell]").nth(2).click()
    value, result, _ = drawer(page)
    assert (value, result) == (pytest.approx(final[2], abs=1e-9),) * 2


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    return save_large_bundle(tmp_path_factory.mktemp("large") / "large")


def test_a_saved_page_of_a_large_vocabulary_gives_bounds(browser, large, offline_page, tmp_path):
    numbers = record(regard.load(large, device="cpu"), LETTERS, search=Greedy())["out.logits"][1]
    context = new_context(browser, accept_downloads=True)
    with explorer(large) as found:
        visited = Visit(context.new_page(), found)
        page = visited.open(f"#/output?s={LETTERS}&r=1{address(1.5, None, 0.5)}")
        until(page, "document.querySelector('[data-exact=true]') !== null")
        order, *columns = expected(numbers, 1.5, None, 0.5)
        for k, row in enumerate(page.evaluate(READ)):
            for (low, high), column in zip(row["cells"], columns, strict=True):
                assert (low, high) == (pytest.approx(column[k], abs=1e-6),) * 2
        page.get_by_role("button", name="Explain entropy").click()
        shares = expected(numbers, 1.0, None, 1.0)[1]
        bits = -(shares * np.log2(shares)).sum()
        assert drawer(page)[:2] == (pytest.approx(bits, abs=1e-4),) * 2
        page.keyboard.press("Escape")
        file = tmp_path / "saved.html"
        file.write_bytes(download_export(page, "HTML"))
        hash = page.evaluate("location.hash")
    context.close()
    for temperature, top_k, top_p in [(1.0, None, 0.01), (1.5, None, 0.02), (0.6, 5, 1.0)]:
        offline_page.goto("about:blank")
        offline_page.goto(
            f"{file.as_uri()}{hash.split('&o.')[0]}{address(temperature, top_k, top_p)}"
        )
        until(offline_page, "document.querySelector('[data-exact=false]') !== null")
        until(offline_page, "document.querySelector('[data-note]') !== null")
        order, *columns = expected(numbers, temperature, top_k, top_p)
        rows = offline_page.evaluate(READ)
        assert [row["id"] for row in rows] == order[: len(rows)].tolist()
        for k, row in enumerate(rows):
            for (low, high), column in zip(row["cells"], columns, strict=True):
                assert low - 1e-6 <= column[k] <= high + 1e-6, json.dumps(row)
            if row["state"] != "maybe":
                assert (row["state"] == "kept") == (columns[2][k] > 0)
        if top_k is not None:  # what remains is known, so it is exact
            low, high = rows[0]["cells"][2]
            assert low == pytest.approx(high, rel=1e-9)
        assert "most probable of 2,503 tokens" in offline_page.locator("[data-note]").inner_text()
