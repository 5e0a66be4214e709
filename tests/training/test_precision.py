"""Precision: a recipe in bfloat16 trains on every CPU, and records what it computed in."""

import json
import os
import subprocess
import sys

import pytest
import torch

from regard import device
from regard.device import resolve_precision
from regard.errors import RegardError
from regard.training.loop import Interrupted
from regard.training.run import run
from tests.commands.small import Quiet, arguments, job, left_by
from tests.training.test_resume import signal_at

CPU = torch.device("cpu")
NOTE = "float32 instead of bfloat16: this CPU has no bfloat16 arithmetic (train.precision)"


def settings(out):
    return json.loads((out / "settings.json").read_text())


@pytest.fixture
def without_bfloat16(monkeypatch):
    monkeypatch.setattr(device, "supports_bfloat16", lambda place: False)


@pytest.fixture
def with_bfloat16(monkeypatch):
    monkeypatch.setattr(device, "supports_bfloat16", lambda place: True)


def test_bfloat16_trains_without_warnings_in_a_new_process(tmp_path, data):
    words = arguments(data, tmp_path / "run", "--set", "train.precision=bfloat16", "--steps", "2")
    environment = {**os.environ, "PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    supported = device.supports_bfloat16(CPU)
    assert ("float32 instead of bfloat16" in done.stdout + done.stderr) != supported
    assert settings(tmp_path / "run")["train"]["precision"] == (
        "bfloat16" if supported else "float32"
    )


@pytest.mark.parametrize(
    ("requested", "supported", "resolved"),
    [
        ("auto", True, "float32"),  # on CPUs bfloat16 is used on request only
        ("float32", False, "float32"),
        ("bfloat16", True, "bfloat16"),
        ("bfloat16", False, "float32"),
    ],
)
def test_precision_is_resolved_for_the_cpu(monkeypatch, requested, supported, resolved):
    monkeypatch.setattr(device, "supports_bfloat16", lambda place: supported)
    precision, note = resolve_precision(requested, CPU)
    assert precision == resolved
    assert bool(note) == (requested != "auto" and requested != resolved)


def test_without_bfloat16_a_run_is_that_of_float32(tmp_path, data, without_bfloat16):
    view = Quiet()
    card = run(job(data, tmp_path / "run", precision="bfloat16"), view)
    assert view.lines.count(NOTE) == 1
    assert card["settings"]["train"]["precision"] == "float32"
    run(job(data, tmp_path / "same", precision="float32"), Quiet())
    assert left_by(tmp_path / "run") == left_by(tmp_path / "same")


def test_a_run_resumes_in_the_precision_it_began_with(tmp_path, data, monkeypatch):
    monkeypatch.setattr(device, "supports_bfloat16", lambda place: False)
    wanted = job(data, tmp_path / "run", precision="bfloat16")
    with pytest.raises(Interrupted):
        run(wanted, Quiet(signal_at(3)))
    monkeypatch.setattr(device, "supports_bfloat16", lambda place: True)  # on another machine
    run(wanted, Quiet())
    assert settings(tmp_path / "run")["train"]["precision"] == "float32"
    run(job(data, tmp_path / "same", precision="float32"), Quiet())
    assert left_by(tmp_path / "run") == left_by(tmp_path / "same")


def test_another_precision_is_refused_on_resume(tmp_path, data, without_bfloat16):
    with pytest.raises(Interrupted):
        run(job(data, tmp_path / "run", precision="float32"), Quiet(signal_at(3)))
    with pytest.raises(RegardError, match=r"train\.precision was 'float32' and is 'bfloat16'"):
        run(job(data, tmp_path / "run", precision="bfloat16"), Quiet())


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # torch, on a CPU without bfloat16
def test_a_bfloat16_run_continues_without_bfloat16_in_float32(tmp_path, data, monkeypatch):
    monkeypatch.setattr(device, "supports_bfloat16", lambda place: True)
    wanted = job(data, tmp_path / "run", precision="bfloat16")
    with pytest.raises(Interrupted):
        run(wanted, Quiet(signal_at(3)))
    monkeypatch.setattr(device, "supports_bfloat16", lambda place: False)
    view = Quiet()
    run(wanted, view)
    assert NOTE in view.lines
    assert settings(tmp_path / "run")["train"]["precision"] == "bfloat16"
