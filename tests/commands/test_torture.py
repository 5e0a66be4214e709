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


def test_kills_change_no_byte_of_predict(tmp_path: Path):
    code, found = torture(tmp_path, "predict", "--kills", "12")
    assert found["predict: kills"] >= 12
    assert (code, found["predict: failures"]) == (0, 0)
    expected = tmp_path / "predict/prepared/text.json"
    facts = json.loads(expected.read_text())
    facts["result"]["out.txt"] = "another digest"
    expected.write_text(json.dumps(facts))
    code, found = torture(tmp_path, "predict", "--kills", "20")  # resumes, and finds the difference
    assert found["predict: kills"] >= 20
    assert code == 1
    assert 1 <= found["predict: failures"] <= 8


def test_kills_change_no_bit_of_training(tmp_path: Path):
    code, found = torture(tmp_path, "training", "--kills", "6")
    assert found["training: kills"] >= 6
    assert (code, found["training: failures"]) == (0, 0)


def test_mutated_bundles_and_fuzzed_data_are_refused(tmp_path: Path):
    code, found = torture(tmp_path, "bundles", "data", "--cases", "100")
    for name in ("bundles", "data"):
        assert found[f"{name}: cases"] >= 100
        assert found[f"{name}: refused"] > 20
        assert found[f"{name}: failures"] == 0
    assert code == 0
