"""A small part of benchmarks/torture.py: the same kills, bundles and data files, only fewer."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.codebase import ROOT


def torture(work: Path, *words: str) -> tuple[int, dict[str, float]]:
    """Run the benchmark; returns its exit code and its figures by name."""
    command = [sys.executable, str(ROOT / "benchmarks/torture.py"), *words, "--processes", "2"]
    done = subprocess.run([*command, "--work", str(work)], capture_output=True, text=True)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, {check["name"]: check["value"] for check in found["checks"]}


def test_nothing_is_lost_and_nothing_is_raised(tmp_path: Path):
    code, found = torture(tmp_path, "--kills", "4", "--cases", "60")
    for name in ("training", "predict"):
        assert found[f"{name}: kills"] >= 4
        assert found[f"{name}: failures"] == 0
    for name in ("bundles", "data"):
        assert found[f"{name}: cases"] >= 60
        assert found[f"{name}: refused"] > 20
        assert found[f"{name}: failures"] == 0
    assert code == 0
    expected = tmp_path / "predict/prepared/text.json"
    facts = json.loads(expected.read_text())
    facts["result"]["out.txt"] = "another digest"
    expected.write_text(json.dumps(facts))
    # The same command resumes; a difference from the undisturbed run is a failure.
    code, found = torture(tmp_path, "predict", "--kills", "12")
    assert found["predict: kills"] >= 12
    assert code == 1
    assert found["predict: failures"] >= 1
