"""The calibration benchmark: what it reads, and which figures it checks."""

from pathlib import Path

import pytest

from benchmarks import calibration
from regard.training import cmudict
from tests.commands.small import written


def test_files_and_the_included_split_are_read(tmp_path: Path):
    test = written(tmp_path / "test.tsv", [("a", "x"), ("a", "y"), ("b", "z")])
    dev = written(tmp_path / "dev.tsv", [("c", "x")])
    part = calibration.read_set("mine", [str(test), str(dev)], None, None)
    assert part.test == {"a": ["x", "y"], "b": ["z"]}
    assert part.dev == {"c": ["x"]}
    included = calibration.read_set(calibration.INCLUDED, [], None, 50)
    assert len(included.test) == 50
    assert {cmudict.part(word) for word in included.test} == {"test"}
    assert {cmudict.part(word) for word in included.dev} == {"dev"}
    with pytest.raises(SystemExit, match="needs --data"):
        calibration.read_set("unknown", [], None, None)


def test_a_worse_confidence_is_missed():
    found = {"before": 11.0, "after": 2.0, "floor": 1.5}
    good, bad = (
        calibration.checks([calibration.Measured("set", 100, 70.0, values)])
        for values in (found, {**found, "after": 12.0})
    )
    assert [check.ok for check in good] == [True] * 4
    assert [check.ok for check in bad] == [True, True, True, False]
    assert (bad[3].value, bad[3].ceiling, bad[3].target) == (12.0, 1.5, 11.0)


def test_an_included_model_is_calibrated_on_dev(monkeypatch):
    monkeypatch.setattr(calibration, "MAX_DEV", 300)
    found = calibration.measure(f"{calibration.INCLUDED}=spelling-recurrent", None, "cpu", 300)
    assert found.sources == 300
    assert found.found["method"] != "none"
    assert found.found["after"] < found.found["before"] / 2
