"""Comparing models of different families: alignment with alignment, or head with head."""

import re
from urllib.parse import quote

import pytest
import torch

import regard
from regard.trace import alignment_matrix, record
from tests.browser.conftest import until

SOURCE = "attention"
DIFFERENCE = "document.querySelector('[data-view=\"compare.difference\"]') !== null"


@pytest.fixture(scope="module")
def alignments():
    found = []
    for name in ("spelling", "spelling-recurrent"):
        pipeline = regard.load(name)
        trace = record(pipeline, SOURCE, search=pipeline.search(beam=1))
        found.append((trace, alignment_matrix(trace)))
    return found


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def table(page, view: str) -> list[list[float]]:
    frame = page.locator(f'[data-view="{view}"]')
    frame.get_by_role("button", name=re.compile("as a table")).click()
    rows = frame.locator("tbody tr")
    return [
        [number(cell) for cell in rows.nth(at).locator("td").all_inner_texts()]
        for at in range(rows.count())
    ]


def test_families_are_compared_by_their_alignment(visit, ids, alignments):
    reference = quote(f"#/compare?m={ids['spelling']}&s={SOURCE}", safe="")
    page = visit().open(f"#/compare?m={ids['spelling-recurrent']}&s={SOURCE}&ref={reference}")
    until(page, DIFFERENCE)
    assert page.get_by_role("combobox", name="Show", exact=True).input_value() == "alignment"
    (_, before), (_, after) = alignments
    assert table(page, "compare.reference")[2] == pytest.approx(before[2].tolist(), abs=1e-3)
    assert table(page, "compare.current")[2] == pytest.approx(after[2].tolist(), abs=1e-3)
    difference = (after - before)[3].tolist()
    assert table(page, "compare.difference")[3] == pytest.approx(difference, abs=1e-3)


def test_page_opens_on_the_other_family(visit, ids, alignments):
    page = visit().open(f"#/compare?m={ids['spelling']}&s={SOURCE}")
    until(page, DIFFERENCE)
    models = page.locator("[data-run] td:nth-child(2)").all_inner_texts()
    assert ["Bahdanau" in one for one in models] == [True, False]
    expected = alignments[0][1] - alignments[1][1]
    assert table(page, "compare.difference")[1] == pytest.approx(expected[1].tolist(), abs=1e-3)


def test_heads_of_two_models_are_compared_by_choice(visit, ids, alignments):
    page = visit().open(f"#/compare?m={ids['spelling']}&s={SOURCE}")
    until(page, DIFFERENCE)
    page.get_by_role("combobox", name="Show", exact=True).select_option("heads")
    page.get_by_role("combobox", name="Head of the current run").select_option("dec.2.cross.1")
    until(page, "location.hash.includes('right=dec.2.cross.1')")
    until(page, DIFFERENCE)
    (transformer, _), (recurrent, _) = alignments
    expected = transformer["dec.2.cross.weights"][1] - recurrent["attn.weights"][0]
    assert isinstance(expected, torch.Tensor)
    assert table(page, "compare.difference")[2] == pytest.approx(expected[2].tolist(), abs=1e-3)
