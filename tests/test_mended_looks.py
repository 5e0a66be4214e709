"""Faults that were found by looking at numbers from outside: each stays mended."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import regard
from regard import plots
from regard.errors import RegardError, ShapeError
from regard.positions import Alibi, Sinusoidal

WORDS = [f"w{i}" for i in range(20)]


@pytest.fixture(scope="module")
def spelling():
    return regard.load("spelling")


def test_arrays_of_any_layout_are_drawn():
    labels, weights = ["a", "b", "c"], np.full((3, 3), 1 / 3)
    still = weights.copy()
    still.flags.writeable = False
    for given in (weights[::-1], weights.astype(">f8"), weights.astype(np.longdouble), still):
        plots.weights(given, labels, allowed=np.ones((3, 3), dtype=bool)[::-1])
        plots.heads(np.stack([given, given])[::-1], labels)
    with pytest.raises(RegardError, match="must be boolean"):
        plots.weights(weights, labels, allowed=np.ones((3, 3), dtype=int))


def test_other_vectors_wear_their_own_names():
    for wrong in ({"others": -np.eye(3)}, {"other_labels": ["x", "y", "z"]}):
        with pytest.raises(RegardError, match="others and other_labels come together"):
            plots.similarity(np.eye(3), ["a", "b", "c"], **wrong)


def test_mean_scores_say_what_does_not_fit():
    with pytest.raises(ShapeError, match="Sinusoidal adds vectors of 512, and dim is 64"):
        plots.mean_scores(Sinusoidal(width=512), dim=64, heads=8)
    with pytest.raises(
        ShapeError, match=r"contents must be \(content, 64\), one at least; got shape \(0, 64\)"
    ):
        plots.mean_scores(Alibi(heads=8), dim=64, heads=8, contents=torch.randn(0, 64))


def test_white_space_around_a_text_is_not_unknown(spelling):
    assert (
        spelling(" attention\t").unknown
        == regard.record(spelling, " attention\t").answer.unknown
        == []
    )
    assert (
        spelling(" atté ntion\t").unknown
        == regard.record(spelling, " atté ntion\t").answer.unknown
        == ["é", " "]
    )


def test_a_number_of_a_row_may_be_asked_for_by_itself(spelling):
    trace = regard.record(spelling, "at")
    assert trace.explain("out.chosen", 1).value == trace.explain("out.chosen", [1]).value


def test_all_parts_that_the_readme_names_are_there():
    for part in ("models", "kernels", "pipeline", "explore"):
        assert getattr(regard, part).__name__ == f"regard.{part}"


def test_what_is_no_text_is_one_line():
    """In a separate process: here, type checks of every call would raise first."""
    asked = [
        "record(m, 5)",
        "record(m, 'a', edits={'kind': 'unmasked'})",
        "list_(m.stream(5))",
        "list_(m.scores(['ab']))",
    ]
    program = (
        "import regard; from regard import *; from builtins import list as list_; m = "
        "regard.load('spelling')\n"
    )
    for ask in (*asked, "m.score(5, 'AH')", "m.score('a', 5)", "m.sample(5)"):
        program += (
            f"try:\n    {ask}; print('nothing')\nexcept regard.RegardError as error:\n    "
            "print(error)\n"
        )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said = ended.stdout.splitlines()
    assert said.count("text must be a str; got 5") == 5
    assert said[1].startswith("edits are a list of them")
    assert said[3] == "expected a pair of texts, source and target; got 'ab'"
