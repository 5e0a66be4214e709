"""`regard bench` on a GPU: every supporting backend is timed, and `auto`'s choice is printed."""

import json

import pytest
import torch

from regard.attention import BACKENDS, everything
from regard.commands import bench
from regard.commands.bench_cases import cases

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def test_a_gpu_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    few = [
        case
        for case in cases("cuda", everything)
        if case.length == "short" and case.rows == "uneven"
    ]
    monkeypatch.setattr(bench, "cases", lambda device, mask: few)
    bench.bench(device="cuda", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["name"].startswith(torch.cuda.get_device_name())
    assert found["precision"] == "bfloat16"
    assert found["products"] > 1e12  # any GPU that has bfloat16
    assert len(found["cases"]) == 2 * len(few)
    for case in found["cases"]:
        assert {*case["milliseconds"], *case["cannot"]} == set(BACKENDS)
        assert case["auto"] in case["milliseconds"]
        assert all(0.001 < milliseconds < 1_000 for milliseconds in case["milliseconds"].values())
        assert 0 < case["of_ceiling"] <= 1.1


def test_the_tables_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    few = [
        case
        for case in cases("cuda", everything)
        if (case.score, case.length) == ("plain", "middle")
    ]
    monkeypatch.setattr(bench, "cases", lambda device, mask: few)
    bench.bench(device="cuda")
    printed = capsys.readouterr().out
    assert "forward and backward, ms" in printed
    assert "←" in printed
