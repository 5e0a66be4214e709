"""Each stage of a computation is on the page, with the numbers that NumPy computes."""

import re

import numpy as np
import pytest

from regard.search import Greedy
from regard.trace import record
from tests.browser.conftest import until

SOURCE = "attention"
ATTENTION = "dec.1.self"
ROW, COLUMN = 2, 1  # a cell that the causal mask allows
SAID = re.compile(r": (−?(?:[\d.]+(?:e[+-]?\d+)?|∞))[^:]*$")


@pytest.fixture(scope="module")
def trace(pipelines):
    return record(pipelines["spelling"], SOURCE, search=Greedy())


@pytest.fixture(scope="module")
def stages(trace) -> dict[str, np.ndarray]:
    """The first head, recomputed from its projected states."""
    q, k, v, turned, matched = (
        trace[f"{ATTENTION}.{name}"][0].double().numpy()
        for name in ("q", "k", "v", "q.rotated", "k.rotated")
    )
    dots = turned @ matched.T
    scores = dots / np.sqrt(q.shape[1])
    masked = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    powers = np.exp(masked - masked.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    return {
        "q": q,
        "k": k,
        "v": v,
        "dots": dots,
        "scores": scores,
        "masked": masked,
        "weights": weights,
        "context": weights @ v,
    }


def cell_number(page, name: str, row: int, column: int) -> float:
    """The number that a heat map announces for a cell, reached with the arrow keys."""
    cell = page.locator(f"[data-heatmap][data-name='{name}'] [role=gridcell]").first
    cell.focus()
    page.keyboard.press("Control+Home")
    for key, count in (("ArrowDown", row), ("ArrowRight", column)):
        for _ in range(count):
            page.keyboard.press(key)
    text = cell.get_attribute("aria-label")
    found = SAID.search(text)
    assert found, f"{name} {row} {column}: {text}"
    return float(found[1].replace("−", "-").replace("∞", "inf"))


def test_every_stage_of_an_attention_is_shown(visit, ids, stages):
    page = visit().open(f"#/attention?m={ids['spelling']}&s={SOURCE}&a={ATTENTION}")
    for stage, expected in stages.items():
        shown = cell_number(page, f"{ATTENTION}.{stage}", ROW, COLUMN)
        assert shown == pytest.approx(expected[ROW, COLUMN], rel=1e-4, abs=1e-5), stage
    for stage, future in (("scores", stages["scores"][1, 3]), ("masked", -np.inf), ("weights", 0)):
        assert cell_number(page, f"{ATTENTION}.{stage}", 1, 3) == pytest.approx(future, rel=1e-4)


def test_tokens_have_their_ids(visit, ids, pipelines, trace):
    page = visit().open(f"#/tokens?m={ids['spelling']}&s={SOURCE}")
    source = pipelines["spelling"].bundle.source
    for at in (0, 3):
        page.locator("[data-view='pieces.source'] button[aria-current]").nth(at).click()
        letter = SOURCE[at]
        until(page, f"document.querySelector('.facts').innerText.includes('{letter}')")
        id = source.encode(letter)[0]
        assert re.search(rf"\b{id}\b", page.locator(".facts").first.inner_text())


def test_decoding_is_followed_step_by_step(visit, ids, trace):
    page = visit().open(f"#/tokens?m={ids['spelling']}&s={SOURCE}")
    slider = page.locator("header .step input")
    logits = trace["out.logits"].double().numpy()
    for step, token in enumerate(trace.following[:4]):
        slider.fill(str(step))
        p = np.exp(logits[step] - np.logaddexp.reduce(logits[step]))[token.id]
        row = page.locator("[data-view=steps] ol li").nth(step)
        assert f"{p:.3f}" in row.inner_text() or f"{p:.2f}" in row.inner_text()
        assert token.text in page.locator("header .where").inner_text()
