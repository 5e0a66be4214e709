"""`regard doctor`: facts of this machine, and what it says about broken installations."""

import copy
import json
import os
import platform
import shutil
import subprocess
import sys

import pytest

import regard as package
from regard.commands import doctor as doctor_command
from regard.commands import machine_facts
from regard.commands.requirements import PackageRequirement, _parse
from tests.commands.small import regard
from tests.native_build import require_native_engine

HEALTHY = {
    "versions": {"regard": "0.2.0", "metadata": "0.2.0", "python": "3.12.1", "torch": "2.13.0"},
    "system": "Linux",
    "cpu": {"name": "a CPU", "machine": "x86_64", "cores": 4, "features": ["AVX2"], "quota": None},
    "engine": {"available": True, "reason": None, "kernels": ["avx2", "plain"], "failure": None},
    "compiler": {"command": "g++", "version": "g++ 13"},
    "gpu": {"driver": False, "devices": [], "reason": None},
    "threads": {"OMP_NUM_THREADS": None, "MKL_NUM_THREADS": None},
    "memory": {"total": 16.0, "available": 8.0},
    "disk": {"folder": "/home", "free": 100.0, "writable": True},
    "requirements": [
        {"name": "torch", "extra": "", "problem": None, "fix": ""},
        {"name": "matplotlib", "extra": "plots", "problem": "not installed", "fix": ""},
    ],
}


def findings(*path: str, value: object) -> list[doctor_command.Finding]:
    """The findings for a healthy machine with one fact changed."""
    facts = copy.deepcopy(HEALTHY)
    place = facts
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return list(doctor_command.examine(facts))


def test_a_healthy_machine_has_nothing_to_fix():
    found = list(doctor_command.examine(HEALTHY))
    assert {one.level for one in found} == {"ok", "note"}
    assert doctor_command.format_report(found).endswith("Everything is in order.")


@pytest.mark.parametrize(
    ("path", "value", "level", "fix"),
    [
        (("versions", "python"), "3.10.4", "fail", "Python 3.11"),
        (("versions", "metadata"), "0.1.0", "warn", "pip install"),
        (("engine", "failure"), "the included model answers 'X'", "fail", "python -m regard"),
        (("gpu", "reason"), "this build of torch is for CPUs only", "warn", "pytorch.org"),
        (("memory", "available"), 0.3, "warn", "batch_tokens"),
        (("disk", "free"), 0.2, "warn", "--out"),
        (("disk", "writable"), False, "warn", "--out"),
    ],
)
def test_each_problem_has_a_fix(path, value, level, fix):
    (one,) = [one for one in findings(*path, value=value) if one.level not in ("ok", "note")]
    assert one.level == level
    assert fix in one.fix
    assert "\n" not in one.text + one.fix


def test_a_missing_engine_is_a_warning_with_its_fix():
    reason = "the native engine is missing: no C++ compiler was found; install g++, then build"
    engine = {"available": False, "reason": reason, "kernels": [], "failure": None}
    (one,) = [one for one in findings("engine", value=engine) if one.level == "warn"]
    assert one.text.endswith("models run on torch")
    assert one.fix == "install g++, then build"


def test_a_missing_package_fails_and_a_missing_extra_does_not():
    old = PackageRequirement("numpy", "1.26", "1.9.3")
    listed = [{**vars(old), "problem": old.problem, "fix": old.fix}]
    (one,) = [one for one in findings("requirements", value=listed) if one.level == "fail"]
    assert one.text == "numpy 1.9.3 is too old; 1.26 or newer is needed"
    assert one.fix == 'pip install "numpy>=1.26"'


@pytest.mark.parametrize(
    ("installed", "minimum", "fits"),
    [
        ("2.13.0+cpu", "2.11", True),
        ("2.9.1", "2.11", False),  # numbers, not letters
        ("3.0", "3.0.0", True),
        ("1.26.0rc1", "1.26", True),
        (None, "1", False),
    ],
)
def test_versions_are_compared_by_number(installed, minimum, fits):
    assert (PackageRequirement("x", minimum, installed).problem is None) == fits


def test_requirements_are_read_from_metadata():
    lines = ["numpy>=1.26", "old>=1; python_version < '3.9'", "pandas>=1; extra == 'tables'"]
    found = {(one.name, one.minimum, one.extra) for one in _parse(lines)}
    assert found == {("numpy", "1.26", ""), ("pandas", "1", "tables")}


def test_facts_agree_with_other_sources():
    require_native_engine()
    facts = doctor_command.collect_facts()
    assert facts["versions"]["regard"] == package.__version__
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["cpu"]["cores"] <= os.cpu_count()
    free = shutil.disk_usage(".").free / 1e9
    assert facts["disk"]["free"] == pytest.approx(free, rel=0.2)
    if hasattr(os, "sysconf"):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        assert facts["memory"]["total"] <= total * 1.001
    assert facts["engine"]["kernels"][-1] == "plain"
    assert facts["engine"]["failure"] is None


def test_cpu_features_of_both_architectures():
    intel = "model name\t: A CPU\nflags\t\t: fpu avx2 fma sse2\n\nmodel name\t: Another\n"
    assert machine_facts._linux_cpu(intel) == ("A CPU", ["AVX2", "FMA"])
    arm = "processor\t: 0\nFeatures\t: fp asimd asimddp bf16\n"
    assert machine_facts._linux_cpu(arm) == ("", ["NEON", "dot product", "BF16"])


def test_the_limit_of_a_container_is_read():
    assert machine_facts.parse_quota("150000 100000\n") == 1.5
    assert machine_facts.parse_quota("max 100000\n") is None
    assert machine_facts.parse_quota("") is None


def test_json_has_facts_and_findings(capsys):
    out, _ = regard(capsys, "doctor", "--json")
    found = json.loads(out)
    assert found["ok"] is True
    assert found["versions"]["regard"] == package.__version__
    assert {one["name"] for one in found["findings"]} >= {"regard", "cpu", "engine", "memory"}


def test_the_exit_status_is_1_if_something_failed(capsys, monkeypatch):
    monkeypatch.setattr(doctor_command, "_wrong_prediction", lambda: "the answer is wrong")
    require_native_engine()
    out, _ = regard(capsys, "doctor", code=1)
    assert "✗  engine    the answer is wrong" in out
    assert "1 to fix" in out


def test_doctor_does_not_import_torch_without_a_gpu():
    script = (
        "import sys\nfrom regard.cli import main\n"
        "try: main(['doctor'])\nfinally: assert 'torch' not in sys.modules"
    )
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "engine" in done.stdout
