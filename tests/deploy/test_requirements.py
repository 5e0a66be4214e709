"""Files of the image: requirements as in pyproject.toml, and nothing that needs torch."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from regard.native.library import unavailable

ROOT = Path(__file__).parent.parent.parent
# Dependencies that serving does not import: training, metrics, shape checks and the explorer.
NOT_SERVED = {"torch", "jaxtyping", "rapidfuzz", "sacrebleu", "fastapi"}
SERVING = """
import sys
for name in {blocked}: sys.modules[name] = None
import regard.cli, regard.commands.serve, regard.serve.worker_loop, regard.commands.predict
from regard.loading import load
print(load("spelling", engine="native")("attention"))
"""


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found
    return found[0]


def test_requirements_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [one for one in project["dependencies"] if name_of(one) not in NOT_SERVED]
    lines = (ROOT / "deploy/requirements-serve.txt").read_text().splitlines()
    listed = [line for line in lines if line and not line.startswith("#")]
    assert sorted(listed) == sorted([*wanted, *project["optional-dependencies"]["serve"]])
    assert {name_of(one) for one in project["dependencies"]} > NOT_SERVED


@pytest.mark.skipif(unavailable() is not None, reason="the native engine is not built")
def test_serving_imports_nothing_else():
    script = SERVING.format(blocked=sorted(NOT_SERVED))
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "AH T EH N SH AH N\n"


def test_image_copies_only_listed_files():
    copied = re.findall(r"^COPY (?!--from)(.*)", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    names = {
        name.rstrip("/")
        for line in copied
        for name in line.split()[:-1]
        if not name.startswith("--")
    }
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert allowed[0] == "*"
    assert names == {line[1:] for line in allowed if line.startswith("!")}
    assert all((ROOT / name).exists() for name in names)


def test_image_copies_the_licenses_of_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for name in (*project["license-files"], project["readme"]):
        assert f"!{name}" in allowed or name.startswith("src/"), name
