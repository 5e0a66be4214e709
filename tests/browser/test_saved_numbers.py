"""Quotients, rank correlations, lens ranks and weights open the drawer; a saved page's numbers."""

import math

import numpy as np
import pytest

import regard
from regard.search import Greedy
from regard.trace import logit_lens, rank, record
from regard.trace.derived import embedding_cosine, lens_probability, lens_rank, pca_coordinate
from tests.browser.conftest import download_export, until
from tests.browser.test_derived_numbers import drawer, explain

SOURCE = "attention"


@pytest.fixture(scope="module")
def trace():
    return record(regard.load("spelling", device="cpu"), SOURCE, search=Greedy())


def test_the_quotient_of_two_norms_is_explained(visit, ids, trace):
    page = visit().open(
        f"#/residual?m={ids['spelling']}&s={SOURCE}&a=enc.0.self&i=2&o.step=enc.0.resid2"
    )
    added, before = (trace[name][2].double().norm() for name in ("enc.0.ffn.out", "enc.0.resid1"))
    value, result, _ = explain(page, "contribution ÷ residual")
    assert result == pytest.approx(float(added / before), rel=1e-9)
    assert value == pytest.approx(result, rel=1e-5)
    page.locator("[data-drawer] tbody").get_by_role("button").first.click()
    until(page, "document.querySelector('[data-drawer]').innerText.includes('√ Σ')")
    assert drawer(page)[1] == pytest.approx(float(added), rel=1e-9)


def test_the_rank_correlation_is_explained(visit, ids):
    page = visit().open(f"#/ablation?m={ids['spelling-recurrent']}&s={SOURCE}")
    until(page, "document.querySelector('[data-rank] button') !== null")
    shown = float(page.locator("[data-rank] button").inner_text().replace("−", "-"))
    value, result, sizes = explain(page, "rank correlation")
    assert (value, result) == (pytest.approx(shown, abs=6e-4), pytest.approx(value, abs=1e-9))
    pairs = page.locator("[data-drawer] tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('[data-operand]')]"
        ".map(one => +one.dataset.operand))"
    )
    weights, effects = np.array(pairs).T
    one, other = (
        np.array([(x < y).sum() + (x == y).sum() / 2 for y in x]) for x in (weights, effects)
    )
    assert result == pytest.approx(np.corrcoef(one, other)[0, 1], abs=1e-9)
    assert len(sizes) == len(pairs)
    page.locator("[data-drawer] tbody tr").first.get_by_role("button").last.click()
    until(page, "document.querySelector('[data-drawer]').innerText.includes('hidden')")


def test_ranks_of_the_logit_lens_are_explained(visit, ids, trace):
    page = visit().open(f"#/output?m={ids['spelling']}&s={SOURCE}&r=2")
    token = trace.following[2].id
    first = next(iter(logit_lens(trace, 2)))
    value, result, sizes = explain(page, "rank, token embedding")
    expected = rank(logit_lens(trace, 2)[first], token)
    assert (value, result, sum(sizes)) == (expected, expected, expected - 1)


def test_weights_lead_to_their_table(visit, ids, trace):
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&x=enc.0.ffn.hidden,1,2")
    until(page, "document.querySelector('[data-drawer] .weight') !== null")
    name = page.locator("[data-drawer] .weight").nth(3).inner_text()
    page.locator("[data-drawer] .weight").nth(3).click()
    page.locator("[data-weight-table] [data-heatmap]").wait_for()
    weight = dict(trace.pipeline.model.named_parameters())[name.split("[")[0]].detach()
    shown = page.locator("[data-weight]").get_attribute("data-weight")
    assert float(shown) == pytest.approx(float(weight[2, 3]), rel=1e-6)
    page.locator("[data-weight-table] [role=gridcell]").focus()
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('[data-weight-table] code').innerText.endsWith('[2,4]')")
    shown = page.locator("[data-weight]").get_attribute("data-weight")
    assert float(shown) == pytest.approx(float(weight[2, 4]), rel=1e-6)
    page.keyboard.press("Escape")
    until(page, "document.querySelector('[data-drawer] [data-value]') !== null")


def test_a_saved_page_explains_numbers_of_tables(visit, ids, trace, offline_page, tmp_path):
    file = tmp_path / "saved.html"
    page = visit().open(f"#/embedding?m={ids['spelling']}&s={SOURCE}")
    file.write_bytes(download_export(page, "HTML"))
    offline_page.goto(file.as_uri())
    until(offline_page, "document.querySelector('[data-bars=neighbours] button') !== null")
    offline_page.locator("[data-bars=neighbours] button").first.click()
    own = trace.source[0].id
    table = trace.pipeline.model.source.table.detach().double()
    cosines = table @ table[own] / (table.norm(dim=1) * table[own].norm())
    cosines[own] = -1
    expected = embedding_cosine(trace, "source", own, int(cosines.argmax()))
    value, result, sizes = drawer(offline_page)
    assert result == pytest.approx(expected.result, abs=1e-9)
    assert value == pytest.approx(result, abs=1e-6)
    assert sizes == pytest.approx([one.numbers[0] for one in expected.computation.terms], abs=1e-9)
    assert expected.place in offline_page.locator("[data-drawer]").inner_text()
    value, result, _ = explain(offline_page, "component 2")
    assert result == pytest.approx(pca_coordinate(trace, "source", own, 1).result, abs=1e-6)
    assert value == pytest.approx(result, abs=1e-6)
    offline_page.evaluate("location.hash = '#/output?r=2'")
    until(offline_page, "document.querySelector('[data-view=lens]') !== null")
    token = trace.following[2].id
    value, result, _ = explain(offline_page, "probability, final norm")
    assert result == pytest.approx(lens_probability(trace, "dec.norm", 2, token).result, abs=1e-9)
    assert math.isclose(value, result, abs_tol=1e-6)
    value, result, _ = explain(offline_page, "rank, token embedding")
    first = next(iter(logit_lens(trace, 2)))
    assert value == result == lens_rank(trace, first, 2, token).result
