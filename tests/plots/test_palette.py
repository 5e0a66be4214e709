"""The palette against the published colours, and against eyes that see fewer of them."""

import json
import subprocess
import sys
from importlib.resources import files

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex

from regard.plots.figures import colour_map
from regard.plots.palette import (
    HEADS,
    INK,
    MASKED,
    SIGNED,
    WEIGHTS,
    as_json,
    channels,
    colour,
    head_colour,
    ink_on,
)

# Linear RGB as seen without one kind of cone (Machado, Oliveira & Fernandes 2009, severity 1).
SEEN = {
    "all cones": np.eye(3),
    "no red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue cones": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
eyes = pytest.mark.parametrize("eye", SEEN)


def linear(code):
    values = np.array(channels(code))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(code, eye="all cones"):
    """CIE L*a*b* of a colour as an eye sees it: distances below about 10 are hard to tell apart."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ np.clip(np.array(SEEN[eye]) @ linear(code), 0, 1) / (0.9505, 1, 1.089)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_weights_are_cividis():
    assert WEIGHTS.stops == tuple(
        to_hex(matplotlib.colormaps["cividis"](level)) for level in range(256)
    )


def test_heads_are_the_colours_of_okabe_and_ito():
    published = {
        (0, 114, 178),
        (213, 94, 0),
        (0, 158, 115),
        (204, 121, 167),
        (230, 159, 0),
        (86, 180, 233),
        (0, 0, 0),
    }
    assert {tuple(round(255 * c) for c in channels(code)) for code in HEADS.values()} == {
        *published,
        (240, 228, 66),
    }


@pytest.mark.parametrize("ramp", [WEIGHTS, SIGNED])
def test_page_and_matplotlib_have_the_same_colours(ramp):
    for share in np.linspace(0, 1, 401):
        ours, theirs = (
            np.array(channels(code))
            for code in (colour(ramp, share), to_hex(colour_map(ramp)(share)))
        )
        assert abs(ours - theirs).max() <= 1 / 255


def test_zero_is_neutral_and_has_its_own_level():
    assert colour(SIGNED, 0.5) == "#f5f5f5"
    assert len({colour(SIGNED, 0.5 + step / 257) for step in (-1, 0, 1)}) == 3


def test_signed_colours_darken_equally_on_both_sides():
    lightness = np.array([lab(stop)[0] for stop in SIGNED.stops[::32]])
    assert (np.diff(lightness[:5]) > 10).all()
    assert abs(lightness - lightness[::-1]).max() < 3


@eyes
def test_signs_differ_for_every_eye(eye):
    for size in (0.2, 0.5, 0.8, 1):
        assert (
            np.linalg.norm(
                lab(colour(SIGNED, 0.5 + size / 2), eye) - lab(colour(SIGNED, 0.5 - size / 2), eye)
            )
            > 20
        )


@eyes
def test_larger_weights_are_lighter_for_every_eye(eye):
    assert (np.diff([lab(stop, eye)[0] for stop in WEIGHTS.stops[::8]]) > 0).all()


@eyes
def test_heads_differ_for_every_eye(eye):
    seen = [lab(code, eye) for code in HEADS.values()]
    assert min(np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]) > 10


def contrast(one, other):
    bright, dark = sorted(
        (linear(code) @ (0.2126, 0.7152, 0.0722) for code in (one, other)), reverse=True
    )
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("ramp", [WEIGHTS, SIGNED])
def test_numbers_in_cells_can_be_read(ramp):
    assert (
        min(contrast(code, ink_on(code)) for code in (colour(ramp, i / 256) for i in range(257)))
        >= 4.5
    )


def test_words_can_be_read_on_white():
    assert min(contrast("#ffffff", code) for code in (INK, MASKED["ink"])) >= 4.5


def test_the_ninth_head_has_the_first_colour():
    assert [head_colour(i) for i in (0, 7, 8)] == ["#0072b2", "#f0e442", "#0072b2"]


def test_palette_as_json_is_complete():
    read = json.loads(as_json())
    assert read["weights"] == {"stops": list(WEIGHTS.stops), "levels": 256}
    assert read["signed"]["stops"][128] == "#f5f5f5"
    assert read["heads"] == HEADS
    assert read["masked"]["text"] == "−∞"
    assert read["signed"]["levels"] == 257


def test_page_and_plots_read_one_file():
    """The page imports the file as it is built; `_ramp` gives the same colours in matplotlib's
    spelling.
    """
    file = json.loads(files("regard.plots").joinpath("palette.json").read_text(encoding="utf-8"))
    for name, ramp in (("weights", WEIGHTS), ("signed", SIGNED)):
        assert [[round(255 * c) for c in channels(stop)] for stop in ramp.stops] == file[name]
        assert [colour(ramp, (level + 0.5) / ramp.levels) for level in range(ramp.levels)] == list(
            ramp.stops
        )
    assert (file["heads"], file["masked"], file["ink"]) == (HEADS, MASKED, INK)


def test_only_plots_need_matplotlib():
    code = """
import sys
sys.modules["matplotlib"] = None
import regard.plots.palette
from regard import RegardError, plots
print(plots.palette.as_json()[:10])
try:
    plots.weights([[1.0]], ["a"])
except RegardError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    json_start, error = result.stdout.splitlines()
    assert json_start == '{"weights"'
    assert (
        error
        == "plots.weights draws with matplotlib, which is missing; pip install 'regard[plots]'"
    )


def test_no_global_state():
    code = """
import sys, torch
from regard import plots
assert "matplotlib" not in sys.modules
plots.weights(torch.eye(2), ["a", "b"])
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
