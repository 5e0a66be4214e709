"""The examples for Slurm and Kubernetes and the page on large inputs, executed task by task."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
WORDS = ["attention", "river", "bank", "noise", "", "tension", "seven"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with an input, the output of a single run and `regard` on the PATH."""
    command = tmp_path / "bin/regard"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m regard "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "lines.txt").write_text("".join(f"{word}\n" for word in WORDS))
    run(tmp_path, ["regard", "predict", "spelling", "--input", "lines.txt", "--output", "one.txt"])
    assert len((tmp_path / "one.txt").read_text().splitlines()) == len(WORDS)
    return tmp_path


def run(folder: Path, words: list, **env: str) -> None:
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_slurm_array_job(place):
    script = ROOT / "examples/bulk/slurm_array.sh"
    assert "#SBATCH --array=1-64\n" in script.read_text()
    for task in ("2", "1"):
        env = {"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_COUNT": "2"}
        run(place, [script, "spelling", "lines.txt", "out.txt"], **env)
    run(place, ["regard", "join", "out.txt"])
    assert (place / "out.txt").read_bytes() == (place / "one.txt").read_bytes()


def test_kubernetes_indexed_job(place):
    specs = {}
    for name in ("job", "join"):
        path = ROOT / f"examples/bulk/kubernetes_{name}.yaml"
        specs[name] = yaml.safe_load(path.read_text())["spec"]
    containers = {name: spec["template"]["spec"]["containers"][0] for name, spec in specs.items()}
    env = {one["name"]: one["value"] for one in containers["job"]["env"]}
    assert env["SHARDS"] == str(specs["job"]["completions"])
    assert specs["job"]["completionMode"] == "Indexed"
    env |= {"SHARDS": "2", "MODEL": "spelling", "INPUT": "lines.txt", "OUTPUT": "out.txt"}
    words = [*containers["job"]["command"], *containers["job"]["args"]]
    for index in ("0", "1"):
        run(place, words, **env, JOB_COMPLETION_INDEX=index)
    run(place, [*containers["join"]["command"], *containers["join"]["args"]], **env)
    assert (place / "out.txt").read_bytes() == (place / "one.txt").read_bytes()
    assert not list(place.glob("*.shard-*"))


def test_commands_of_the_page_run(place):
    page = (ROOT / "docs/bulk.md").read_text()
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        run(place, ["sh", "-e", "-c", block])
    assert (place / "answers.txt").read_bytes() == (place / "one.txt").read_bytes()
    assert (place / "again.feather").exists()
    for block in re.findall(r"```py\n(.*?)```", page, re.DOTALL):
        compile(block, "docs/bulk.md", "exec")
