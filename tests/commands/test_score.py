"""`regard score`: log-probabilities of given targets."""

import json
import math
import os
import subprocess
import sys

import pytest

from regard.loading import load
from tests.commands.small import pairs, regard, written

PAIRS = pairs(300, seed=7)


@pytest.fixture(scope="module")
def model(bundle):
    return load(bundle)


def test_scores_are_those_of_the_model(bundle, model, tmp_path, capsys):
    data = written(tmp_path / "test.tsv", PAIRS[:70])
    out, err = regard(capsys, "score", bundle, data)
    right = [model.score(source, target) for source, target in PAIRS[:70]]
    rows = [line.split("\t") for line in out.splitlines()]
    assert [(source, target) for _, source, target in rows] == PAIRS[:70]
    assert [float(row[0]) for row in rows] == pytest.approx([one.logp for one in right], abs=2e-4)
    tokens = sum(len(target) + 1 for _, target in PAIRS[:70])
    total = sum(one.logp for one in right)
    assert err == (
        f"70 pairs, {tokens:,} tokens (with end tokens), log-probability {total:,.2f}, "
        f"perplexity {math.exp(-total / tokens):.4f}\n"
    )
    out, _ = regard(capsys, "score", bundle, "--pair", "abc", "cba", "--pair", "dd", "dd", "--json")
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["source"], first["target"], first["tokens"]) == ("abc", "cba", ["c", "b", "a"])
    assert first["logps"] == pytest.approx(model.score("abc", "cba").logps, abs=1e-5)
    assert second["logp"] == pytest.approx(model.score("dd", "dd").logp, abs=1e-5)


def test_scores_before_an_error_are_not_lost(bundle, tmp_path):
    data = tmp_path / "pairs.tsv"
    data.write_text("ab\tba\n" * 100 + "no target\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "regard", "score", str(bundle), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 64
    assert len(done.stderr.splitlines()) == 1


BAD = "skipped 1 bad line: 1 missing column (first at {}:2)"


def test_score_reports_skipped_lines(bundle, tmp_path, capsys):
    data = tmp_path / "pairs.tsv"
    data.write_text("ab\tba\nlonely\ncd\tdc\n")
    printed, err = regard(capsys, "score", bundle, data, "--bad-lines", "skip")
    assert [line.split("\t")[1:] for line in printed.splitlines()] == [["ab", "ba"], ["cd", "dc"]]
    left_out, perplexity = err.splitlines()
    assert left_out == BAD.format(data)
    assert perplexity.startswith("2 pairs, ")
