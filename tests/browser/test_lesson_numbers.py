"""Lessons 1 to 5: what they show equals NumPy, the package and the facts that they state."""

import numpy as np
import pytest

from regard.pooling import NadarayaWatson
from tests.browser.lesson_pages import (
    attribute,
    is_done,
    numbers,
    open_lesson,
    python_of,
    set_slider,
)


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def normal(count: int, seed: int) -> np.ndarray:
    """The page's generator: a linear congruential generator and Box–Muller."""
    state, uniform = seed, np.empty(2 * count)
    for k in range(2 * count):
        state = (1664525 * state + 1013904223) % 2**32
        uniform[k] = (state + 0.5) / 2**32
    return np.sqrt(-2 * np.log(uniform[::2])) * np.cos(2 * np.pi * uniform[1::2])


def test_pooling_equals_nadaraya_watson(visit):
    page = open_lesson(visit(), "1", step=1)
    code = python_of("pooling")
    keys, values = code["keys"][:, None], code["values"]
    for logarithm in (-0.4, 0.2):
        set_slider(page, "bandwidth", logarithm)
        h, query = attribute(page, "data-bandwidth"), attribute(page, "data-query")
        model = NadarayaWatson(bandwidth=h).fit(keys, values)
        weights = numbers(page, "[data-figure] g[data-weight]", "data-weight")
        assert weights == pytest.approx(list(model.weights([[query]])[0]), abs=1e-12)
        assert attribute(page, "data-prediction") == pytest.approx(model.predict([[query]])[0])


def test_pooling_is_the_mean_when_wide_and_one_key_when_narrow(visit):
    page = open_lesson(visit(), "1", step=1)
    values = python_of("pooling")["values"]
    assert page.locator("[data-lesson]").get_attribute("data-answer") == "2"
    set_slider(page, "bandwidth", 1)
    assert attribute(page, "data-prediction") == pytest.approx(values.mean(), abs=0.02)
    assert is_done(page, 0)
    assert not is_done(page, 1)
    page.get_by_role("slider", name="Query").focus()
    page.keyboard.press("ArrowLeft")
    set_slider(page, "bandwidth", -1.4)
    assert max(numbers(page, "g[data-weight]", "data-weight")) > 0.9
    assert is_done(page, 1)


def test_analogy_is_exact_and_excluding_makes_it_trivial(visit):
    page = open_lesson(visit(), "2", step=1)
    vectors = np.array(attribute(page, "data-vectors"))
    king, queen, man, woman = vectors
    assert np.allclose(king - man + woman, queen)
    page.get_by_role("slider", name="The word queen").focus()
    for _ in range(12):
        page.keyboard.press("Shift+ArrowLeft")
        page.keyboard.press("Shift+ArrowDown")
    vectors = np.array(attribute(page, "data-vectors"))
    wanted = vectors[0] - vectors[2] + vectors[3]
    cosines = [cosine(vector, wanted) for vector in vectors]
    included = page.locator("[data-found=included]")
    names = ["king", "queen", "man", "woman"]
    assert included.get_attribute("data-word") == names[int(np.argmax(cosines))] != "queen"
    assert float(included.get_attribute("data-cosine")) == pytest.approx(max(cosines))
    assert page.locator("[data-found=excluded]").get_attribute("data-word") == "queen"
    assert is_done(page, 0)
    assert is_done(page, 1)


def test_cosines_of_king_and_queen(visit):
    page = open_lesson(visit(), "2", step=2)
    cosines = numbers(page, "td[data-cosine]", "data-cosine")
    words = python_of("king")["words"]
    pairs = [("king", "queen"), ("man", "woman"), ("king", "man"), ("queen", "woman")]
    assert cosines == pytest.approx([words.cosine(*pair) for pair in pairs], abs=1e-12)
    assert [round(one, 4) for one in cosines[:3]] == [0.9485, 0.9268, 0.9910]
    answer = int(page.locator("[data-lesson]").get_attribute("data-answer"))
    assert answer == int(np.argmax(cosines))


def mixed_bank(vectors: np.ndarray, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    weights = softmax(vectors @ (np.array([[c, -s], [s, c]]) @ vectors[0]))
    return weights, weights @ vectors


def test_bank_turns_to_the_river(visit):
    page = open_lesson(visit(), "3", step=1)
    river = page.get_by_role("slider", name="The word river")
    river.focus()
    page.keyboard.press("ArrowUp")
    assert is_done(page, 0)
    set_slider(page, "angle", 90)
    vectors = np.array(attribute(page, "data-vectors"))
    weights, mixed = mixed_bank(vectors, 90)
    assert numbers(page, "li[data-weight]", "data-weight") == pytest.approx(list(weights))
    assert is_done(page, 1)
    page.get_by_role("button", name="Continue").click()
    cosines = numbers(page, "td[data-cosine]", "data-cosine")
    plain = mixed_bank(vectors, 0)[1]
    expected = [cosine(one, vectors[3]) for one in (vectors[0], plain, mixed)]
    assert cosines == pytest.approx(expected, abs=1e-12)
    assert expected == sorted(expected)


def test_scores_are_symmetric_in_one_space_only(visit):
    page = open_lesson(visit(), "4", step=1)
    words = np.array(attribute(page, "data-words"))
    for angle in (0, 60):
        set_slider(page, "turn0", angle)
        c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        scores = words @ np.array([[c, -s], [s, c]]).T @ words.T / np.sqrt(2)
        shown = np.array(numbers(page, "td[data-score]", "data-score")).reshape(3, 3)
        assert np.allclose(shown, scores)
        weights = np.array(numbers(page, "td[data-weight]", "data-weight")).reshape(3, 3)
        assert np.allclose(weights, softmax(scores))
        assert np.allclose(scores, scores.T) == (angle == 0)
    assert is_done(page, 0)
    before = numbers(page, "td[data-weight]", "data-weight")
    set_slider(page, "turn2", 90)
    assert numbers(page, "td[data-weight]", "data-weight") == before
    assert is_done(page, 1)


def test_scaling_keeps_the_variance(visit):
    page = open_lesson(visit(), "5", step=2)
    drawn = normal(100 * 9 * 1024, 7).reshape(100, 9, 1024)
    for side in ("plain", "scaled"):
        for width in (4, 64, 1024):
            scores = np.einsum("qd,qkd->qk", drawn[:, 0, :width], drawn[:, 1:, :width])
            scores = scores / np.sqrt(width) if side == "scaled" else scores
            weights = softmax(scores)
            jacobian = weights[:, :, None] * (np.eye(8) - weights[:, None, :])
            expected = [
                (scores**2).mean(),
                weights.max(-1).mean(),
                np.sqrt((jacobian**2).sum((1, 2))).mean(),
            ]
            row = f"[data-table={side}] [data-row='{width}'] td"
            assert numbers(page, row, "data-value") == pytest.approx(expected, rel=1e-9)
            if side == "scaled":
                assert expected[0] == pytest.approx(1, abs=0.1)
    assert page.locator("[data-lesson]").get_attribute("data-answer") == "2"
