"""Lessons 6 to 10 and the appendix: what they show equals the package's own results."""

import json

import numpy as np
import pytest
import torch

from regard.positions import Sinusoidal
from tests.browser.conftest import until
from tests.browser.lesson_pages import (
    LESSONS,
    is_done,
    numbers,
    open_lesson,
    python_of,
    set_slider,
)


def answer_of(page) -> int:
    return int(page.locator("[data-lesson]").get_attribute("data-answer"))


def proceed(page) -> None:
    page.get_by_role("button", name="Continue").click()


def test_order_matters_only_with_positions(visit):
    page = open_lesson(visit(), "6", step=1)
    page.get_by_role("button", name="Move man to the right").focus()
    page.keyboard.press("Enter")
    plain, placed = numbers(page, "section[data-apart]", "data-apart")
    words, positions = np.eye(4), Sinusoidal(4)(torch.arange(1, 4)).double().numpy()
    expected = []
    for order, man in (([0, 1, 2], 0), ([1, 0, 2], 1)):
        rows = words[order] + positions
        expected.append(rows[man] @ rows.T @ rows)
    assert plain == 0
    assert placed == pytest.approx(np.linalg.norm(expected[0] - expected[1]), rel=1e-6)
    assert is_done(page, 0)
    page.get_by_role("radio", name="without positions", exact=True).check()
    until(page, "document.querySelector('[data-output=tea]').innerText === 'T AA'")
    code = python_of("order")
    assert page.locator("[data-output=eat]").inner_text() == code["eat"].answer.text
    assert code["tea"].answer.text == code["eat"].answer.text
    proceed(page)
    largest = numbers(page, "td[data-largest]", "data-largest")
    assert largest[0] > 1
    assert largest[1] < 1e-5
    assert answer_of(page) == 1


def test_position_matrices_equal_the_encodings(visit):
    code = python_of("positions")
    page = open_lesson(visit(), "7", step=1)
    stored = json.loads((LESSONS / "lengths.json").read_text())
    expected = {
        "sinusoidal": code["sinusoidal"].numpy(),
        "RoPE": code["rotary"].numpy(),
        "ALiBi": code["alibi"].numpy(),
        "learned": np.array(stored["position_scores"]["learned"]),
        "relative": np.array(stored["position_scores"]["distance"]),
    }
    for name, matrix in expected.items():
        page.get_by_role("radio", name=name, exact=True).check()
        cell = page.locator('[data-heatmap="lesson.positions"] [role=gridcell]')
        cell.focus()
        page.keyboard.press("Control+Home")
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        label = cell.get_attribute("aria-label").rsplit(": ", 1)[1].replace("−", "-")
        assert float(label) == pytest.approx(float(matrix[0, 3]), rel=1e-5, abs=1e-6)
        relative = name in ("RoPE", "ALiBi", "relative", "sinusoidal")
        spread = max(np.ptp(matrix.diagonal(k)) for k in range(-19, 20))
        assert (spread < 0.002) == relative
    assert is_done(page, 0)


def test_accuracies_by_length_are_the_measured_ones(visit):
    stored = json.loads((LESSONS / "lengths.json").read_text())
    at = stored["lengths"].index
    for number, lesson in (("7", "positions"), ("8", "bottleneck")):
        page = open_lesson(visit(), number, step=1)
        rows = stored[lesson]["accuracy"]
        for length in (12, 20):
            set_slider(page, "length", length)
            shown = numbers(page, "li[data-series]", "data-accuracy")
            assert shown == [row[at(length)] for row in rows.values()]
    positions, recurrent = stored["positions"]["accuracy"], stored["bottleneck"]["accuracy"]
    # what the lessons state
    assert max(positions, key=lambda name: positions[name][at(12)]) == "alibi"
    assert all(min(row[: at(10) + 1]) > 0.99 for row in positions.values())
    assert max(positions["learned"][at(12)], positions["sinusoidal"][at(12)]) == 0
    assert max(row[at(15)] for row in positions.values()) < 0.5
    assert max(row[at(14)] for row in positions.values()) >= 0.5
    assert min(recurrent["bahdanau"]) > 0.99
    assert recurrent["none"][at(8)] > 0.95
    assert recurrent["none"][at(20)] < 0.1


def test_attention_follows_the_hand(visit):
    page = open_lesson(visit(), "8", step=1)
    code = python_of("bottleneck")
    page.get_by_role("button", name="All weight on k").focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[data-output]').dataset.output !== '…'")
    shown = page.locator("[data-output]").get_attribute("data-output")
    assert shown == code["pointed"](0, 0) == "K N AY T"
    assert is_done(page, 1)
    free = [float(one) for one in code["trace"]["attn.weights"][0, 3]]
    page.get_by_role("radio", name="3: ■").check()
    assert numbers(page, "button[data-weight]", "data-weight") == pytest.approx(free, abs=1e-5)
    page.get_by_role("button", name="All weight on n").click()
    until(page, "document.querySelector('[data-output]').dataset.output.length > 8")
    assert page.locator("[data-output]").get_attribute("data-output") == code["pointed"](3, 1)
    assert is_done(page, 2)


def test_mask_and_previous_token_head(visit):
    page = open_lesson(visit(), "9", step=1)
    code = python_of("masks")
    allowed = code["allowed"].flatten().tolist()
    cells = page.locator("[data-cell]")
    assert cells.count() == len(allowed) == 16
    for at, may in enumerate(allowed):
        if may:
            cells.nth(at).focus()
            page.keyboard.press("Space")
    assert is_done(page, 0)
    head = f"{code['name']}.{code['head']}"
    shares = numbers(page, "[data-head]", "data-share")
    expected = [code["share"](*one) for one in code["heads"]]
    assert shares == pytest.approx(expected, abs=1e-5)
    assert max(shares) > 0.9
    page.locator(f"[data-head='{head}']").click()
    assert is_done(page, 1)
    page.get_by_role("button", name="Remove this head").click()
    assert code["ablated"].answer.text == "CH EH F"
    assert code["ablated"].answer.text in page.locator("[data-output]").inner_text()
    assert is_done(page, 2)
    assert answer_of(page) == 1
    proceed(page)
    logps = numbers(page, "td[data-logp]", "data-logp")
    totals = [float(code[name]["out.total"]) for name in ("trace", "forced")]
    assert logps == pytest.approx(totals, abs=1e-4)


def test_rank_correlations_of_weights_and_effects(visit):
    page = open_lesson(visit(), "10", step=1)
    code = python_of("explanation")
    for sound in range(3):
        page.get_by_role("radio", name=["N", "AY", "T"][sound], exact=True).check()
        page.locator("button[data-weight]").first.click()
        assert page.locator("[data-effects]").is_visible()
    assert is_done(page, 0)
    proceed(page)
    ranks = numbers(page, "td[data-rank]", "data-rank")
    assert ranks == pytest.approx(list(code["correlations"].values()), abs=1e-6)
    knight = code["correlations"]["knight"]
    assert answer_of(page) == (0 if knight > 0.9 else 1 if knight >= 0.4 else 2)


def test_beam_search_beats_greedy_search(visit):
    page = open_lesson(visit(), "A", step=1)
    answers = python_of("beam")["answers"]
    for at, beam in ((3, 8), (0, 1), (1, 2)):
        set_slider(page, "beam", at)
        shown = page.locator("[data-output]")
        assert shown.get_attribute("data-output") == answers[beam].text
        assert float(shown.get_attribute("data-logp")) == pytest.approx(
            answers[beam].logp, abs=1e-3
        )
    assert answers[8].logp > answers[1].logp
    assert is_done(page, 0)
    assert answer_of(page) == 1
