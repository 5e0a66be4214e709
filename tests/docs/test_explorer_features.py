"""Every feature of the explorer is listed in its README with a browser test that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "explorer/README.md"
FEATURES = [
    "a typed text runs the real model",
    "encoder–decoder models with cross-attention",
    "your own model",
    "tokens and their ids",
    "embedding values",
    "position values",
    "queries, keys and values",
    "unscaled scores",
    "scaling as a stage",
    "masking as a stage",
    "attention weights",
    "weighted sum of the values",
    "residual stream, norms and feed-forward layers",
    "probabilities of the next token",
    "decoding step by step",
    "beam tree",
    "a forced prefix or token",
    "all heads at once",
    "a click shows the formula",
    "a click shows the real operands",
    "every number is followed back to the weights",
    "head ablation",
    "an attention row set by hand",
    "two texts compared",
    "two models or mechanisms compared",
    "Bahdanau's attention",
    "position encodings side by side",
    "Nadaraya–Watson regression (lesson 1)",
    "guided lessons",
    "logit lens",
    "slider over the training",
    "the address is the state",
    "PNG and SVG",
    "data files",
    "one HTML file with its arithmetic",
    "no request leaves the machine",
    "everything by keyboard",
    "colours for every kind of colour vision",
    "more than 128 tokens",
    "tests in a real browser",
    "one command opens it",
]
ROW = re.compile(r"^\| (.+) \| \[`(test_\w+)`\]\((\.\./tests/browser/test_\w+\.py)\) \|$", re.M)
ROWS = ROW.findall(README.read_text().partition("## Features and their tests")[2])


def test_the_table_lists_every_feature_once():
    assert len(FEATURES) == 41
    assert [feature for feature, _, _ in ROWS] == FEATURES


@pytest.mark.parametrize(("feature", "name", "file"), ROWS, ids=[row[0] for row in ROWS])
def test_each_feature_has_a_browser_test(feature: str, name: str, file: str):
    path = (README.parent / file).resolve()
    assert path.is_file(), f"{feature}: {path.name} does not exist"
    assert re.search(rf"^def {name}\(", path.read_text(), re.M), f"{feature}: no {name}"
