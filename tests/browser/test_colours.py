"""Colours: readable with every kind of colour vision, and never the only sign."""

import re

import numpy as np
import pytest

# Simulations of complete colour blindness in linear RGB (Machado, Oliveira and Fernandes 2009).
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
LEGEND = """(name) => [...document.querySelectorAll(
  `[data-view$="${name}"] .steps i`)].map((one) => getComputedStyle(one).backgroundColor)"""


def luminance(colours: np.ndarray, vision: np.ndarray) -> np.ndarray:
    """The relative luminance of sRGB colours as someone with this vision sees them."""
    share = colours / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return (linear @ vision.T).clip(0, 1) @ np.array([0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("vision", VISION)
def test_larger_weights_are_lighter_for_everyone(visit, ids, vision):
    page = visit().open(f"#/attention?m={ids['spelling']}&s=attention")
    found = page.evaluate(LEGEND, "weights")
    colours = np.array([[int(part) for part in re.findall(r"\d+", one)[:3]] for one in found])
    assert len(colours) >= 10
    light = luminance(colours, VISION[vision])
    assert (np.diff(light) > 0).all()
    assert light[-1] - light[0] > 0.6


def test_a_head_is_known_by_its_number(visit, ids):
    page = visit().open(f"#/alignment?m={ids['spelling']}&s=attention")
    page.goto(page.url.replace("#/alignment", "#/heads"))
    page.locator("[data-head]").first.wait_for()
    heads = page.locator("[data-head]")
    for at in range(heads.count()):
        number = heads.nth(at).get_attribute("data-head").rsplit(".", 1)[1]
        label = heads.nth(at).get_attribute("aria-label") or heads.nth(at).inner_text()
        assert re.search(rf"\b{number}\b", label)
