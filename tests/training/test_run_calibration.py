"""The confidence of a trained model: fitted on its held-out set only, used by every engine."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import regard
from regard import bundle
from regard.bundle.training_sources import SourceCollector
from regard.calibration import Calibration
from regard.pretrained import MODELS
from regard.text.reading import Pair
from regard.training import cmudict
from regard.training.run import run
from regard.training.run_calibration import calibrate
from tests.commands.small import Quiet, job, pairs, written
from tests.commands.small import regard as command

KNOWN = "zebra"  # a held-out word that is also a training word


class Log:
    def __init__(self):
        self.events = []

    def write(self, event, **fields):
        self.events.append((event, fields))


def words(part: str, count: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word, phones in cmudict.dictionary():
        if cmudict.part(word) == part:
            found.setdefault(word, []).append(phones)
    return dict(list(found.items())[:: len(found) // count][:count])


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory) -> Path:
    """A copy of `spelling`, calibrated on 500 dev words."""
    folder = tmp_path_factory.mktemp("run")
    shutil.copytree(MODELS / "spelling", folder / "bundle")
    collector = SourceCollector(1)
    list(collector.watch([Pair(KNOWN, "Z")]))
    held_out = SimpleNamespace(references={KNOWN: ["Z"], **words("dev", 500)})
    dataset = SimpleNamespace(held_out=held_out, training_sources=collector.sources())
    world = SimpleNamespace(first=True, device="cpu")
    context = SimpleNamespace(folder=folder, world=world, display=Quiet(), log=Log())
    before = bundle.read(folder / "bundle").card
    calibrate(dataset, context)
    ((event, fields),) = context.log.events
    card = bundle.read(folder / "bundle").card
    assert (event, fields) == ("calibrated", card["calibration"])
    assert {**before, "calibration": fields} == card
    assert fields["outputs"] == len(held_out.references) - 1  # without the known word
    calibrate(dataset, context)  # does not fit again
    assert len(context.log.events) == 1
    return folder / "bundle"


def test_confidence_is_right_as_often_as_it_says(calibrated):
    test = words("test", 1_200)
    flat = [(word, phones) for word, some in test.items() for phones in some]
    found = regard.evaluate(calibrated, flat).calibration
    assert found["before"] > 8  # the model's own probability is too low
    assert found["after"] < 4.5
    assert found["after"] < found["before"] / 2
    assert [one["outputs"] for one in found["bins"]] == [len(test) // 10] * 10
    uncalibrated = regard.evaluate("spelling", flat).calibration
    assert uncalibrated["method"] == "none"
    assert uncalibrated["after"] == uncalibrated["before"] == pytest.approx(found["before"])


def test_every_engine_uses_the_calibration(calibrated):
    weights = json.loads((calibrated / "card.json").read_text())["calibration"]["weights"]
    own = regard.load("spelling")("attention")
    assert own.confidence == pytest.approx(math.exp(own.logp))
    for options in ({"engine": "native"}, {"engine": "torch"}, {"precision": "int8"}):
        answer = regard.load(calibrated, **options)("attention")
        logit = (
            weights["intercept"]
            + weights["log_p"] * answer.logp
            - weights["log_not_p"] * math.log(1 - math.exp(answer.logp))
            + weights["log_length"] * math.log(len(answer.tokens) + 1)
        )
        assert answer.confidence == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-4)
        assert abs(answer.confidence - own.confidence) > 0.05
        best = regard.load(calibrated, **options).best("attention", n=4)
        assert [one.confidence for one in best] == [
            pytest.approx(Calibration(**weights).confidence(one.logp, len(one.logps)))
            for one in best
        ]


def test_commands_print_the_confidence(calibrated, capsys, tmp_path):
    expected = regard.load(calibrated)("zebra")
    out, _ = command(capsys, "predict", str(calibrated), "zebra", "", "--json")
    first, empty = map(json.loads, out.splitlines())
    assert first["confidence"] == pytest.approx(expected.confidence, abs=1e-6)
    assert empty["confidence"] == 1
    path = written(tmp_path / "test.tsv", [("zebra", "Z IY B R AH"), ("zinc", "Z")])
    out, _ = command(capsys, "evaluate", str(calibrated), str(path))
    assert "Confidence (method: " in out
    assert "expected calibration error" in out
    found = json.loads(command(capsys, "evaluate", str(calibrated), str(path), "--json")[0])
    own = [math.exp(one.logp) for one in regard.load(calibrated).many(["zebra", "zinc"])]
    right = [1, 0]
    errors = [100 * abs(p - one) for p, one in zip(own, right, strict=True)]
    assert found["calibration"]["before"] == pytest.approx(sum(errors) / 2, abs=1e-2)


def test_a_hostile_calibration_is_refused(calibrated, tmp_path):
    home = tmp_path / "bundle"
    loaded = bundle.load(calibrated)
    weights = {**loaded.card["calibration"]["weights"], "log_p": -1.0}
    bundle.save(home, loaded.with_card({**loaded.card, "calibration": {"weights": weights}}))
    with pytest.raises(regard.RegardError, match="'calibration' must be an object, with weights"):
        bundle.read(home)


def test_a_small_run_says_that_it_is_not_calibrated(tmp_path):
    display = Quiet()
    card = run(job(written(tmp_path / "pairs.tsv", pairs(40)), tmp_path / "out"), display)
    assert card["calibration"]["method"] == "none"
    assert display.lines[-1].startswith("confidence: not calibrated (it needs at least 100")
    answer = regard.load(tmp_path / "out")("abc")
    assert answer.confidence == pytest.approx(math.exp(answer.logp))
