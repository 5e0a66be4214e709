"""`regard calibrate`: the confidence of an existing model, on pairs it was not trained on."""

import math
from pathlib import Path

import pytest

import regard
from regard.errors import RegardError
from regard.pretrained import MODELS
from regard.training.cmudict import dictionary, part
from tests.commands.small import regard as command
from tests.commands.small import written


@pytest.fixture(scope="module")
def words() -> list[tuple[str, str]]:
    """Held-out words of the included spelling model, with their pronunciations."""
    found = [pair for pair in dictionary() if part(pair[0]) == "test"]
    return found[: 12 * 300 : 12]


@pytest.fixture(scope="module")
def file(words, tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("pairs") / "dev.tsv", words)


@pytest.fixture
def uncalibrated(tmp_path) -> Path:
    """A copy of the spelling model without a calibration."""
    made = regard.load("spelling", device="cpu").bundle
    card = {name: fact for name, fact in made.card.items() if name != "calibration"}
    regard.bundle.save(tmp_path / "model", made.with_card(card))
    return tmp_path / "model"


def test_mean_confidence_is_the_share_of_right_outputs(uncalibrated, words, file, capsys):
    before = (uncalibrated / "weights.safetensors").read_bytes()
    printed, _ = command(capsys, "calibrate", uncalibrated, file)
    assert "own probability" in printed
    assert f"bundle: {uncalibrated}" in printed
    pipeline = regard.load(uncalibrated, device="cpu")
    answers = [pipeline(word) for word, _ in words]
    right = [answer.text == phones for answer, (_, phones) in zip(answers, words, strict=True)]
    share = sum(right) / len(right)
    assert 0.5 < share < 0.9
    mean = sum(answer.confidence for answer in answers) / len(answers)
    assert mean == pytest.approx(share, abs=0.02)  # a logistic regression has this property
    own = sum(math.exp(answer.logp) for answer in answers) / len(answers)
    assert abs(own - share) > 2 * abs(mean - share)
    assert (uncalibrated / "weights.safetensors").read_bytes() == before


def test_an_int8_bundle_keeps_its_weights(words, tmp_path):
    made = regard.quantize("spelling", tmp_path / "int8", held_out=words[:20]).bundle
    before = (tmp_path / "int8/weights.safetensors").read_bytes()
    regard.calibrate(tmp_path / "int8", words)
    assert (tmp_path / "int8/weights.safetensors").read_bytes() == before
    card = regard.load(tmp_path / "int8", device="cpu").bundle.card
    assert card["calibration"]["outputs"] <= len(words)
    assert {**card, "calibration": 0} == {**made.card, "calibration": 0}


def test_an_included_model_is_copied(words, file, tmp_path, capsys):
    stored = (Path(MODELS) / "spelling/card.json").read_bytes()
    _, error = command(capsys, "calibrate", "spelling", file, code=2)
    assert error == "regard: 'spelling' is not a folder and stays as it is; give out (--out)\n"
    command(capsys, "calibrate", "spelling", file, "--out", tmp_path / "copy")
    assert (Path(MODELS) / "spelling/card.json").read_bytes() == stored
    assert regard.load(tmp_path / "copy").bundle.card["calibration"]["weights"]


def test_too_few_pairs_change_nothing(uncalibrated, words):
    before = {path.name: path.read_bytes() for path in uncalibrated.iterdir()}
    with pytest.raises(RegardError, match=r"at least 100 held-out sources.*; give more pairs"):
        regard.calibrate(uncalibrated, words[:99])
    assert {path.name: path.read_bytes() for path in uncalibrated.iterdir()} == before
