"""`regard.bulk` on a real local Ray: the output of one `regard predict`, resumed and in order."""

import gzip
import importlib.util
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import regard
from regard import bulk
from regard.cli import main
from regard.commands.shards import Shard, file_sha256, record_path
from regard.errors import RegardError
from regard.model_location import find_model

WORDS = ["attention", "river", "bank", "noise", "", "tension", "seven", "words"] * 3
MODEL = "spelling"
SCRIPT = Path(__file__).with_name("ray_script.py")


def command(*words) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The inputs, and a first part that an earlier run completed. Its text is changed (and its
    record, too), so that the output tells whether it was done again."""
    home = tmp_path_factory.mktemp("ray")
    data = "".join(f"{word}\n" for word in WORDS).encode()
    (home / "lines.txt.gz").write_bytes(gzip.compress(data))
    pyarrow.parquet.write_table(pyarrow.table({"source": WORDS[:4]}), home / "rows.parquet")
    lines = ("--input", home / "lines.txt.gz", "--n-best", 2, "--device", "cpu")
    command("predict", MODEL, *lines, "--output", home / "one.txt")
    command("predict", MODEL, *lines, "--output", home / "out.txt", "--shard", "1/3")
    rows = ("--input", home / "rows.parquet", "--column", "source")
    command("predict", MODEL, *rows, "--output", home / "one.parquet")
    first = Shard(1, 3).path(home / "out.txt")
    first.write_text("kept\n" + first.read_text())
    record = json.loads(record_path(first).read_text())
    changed = {**record, "sha256": file_sha256(first), "bytes": first.stat().st_size}
    record_path(first).write_text(json.dumps(changed))
    return home


@pytest.fixture(scope="module")
def facts(home):
    """What the script prints; Ray stops by itself."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is missing")
    env = {**os.environ, **bulk.LOCAL_RAY, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    run = subprocess.run(
        [sys.executable, SCRIPT, home, MODEL], env=env, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_finished_parts_are_kept_and_the_rest_answered(home, facts):
    assert (home / "out.txt").read_bytes() == b"kept\n" + (home / "one.txt").read_bytes()
    assert not list(home.glob("out.txt.shard-*"))


def test_parquet_equals_one_run(home, facts):
    assert (home / "out.parquet").read_bytes() == (home / "one.parquet").read_bytes()
    found = pyarrow.parquet.read_table(home / "out.parquet").to_pydict()
    assert found["source"] == WORDS[:4]


def test_predictor_adds_columns_to_a_dataset(home, facts):
    model = regard.load(MODEL, device="cpu")
    for (word, output, score), expected in zip(facts["rows"], WORDS[:4], strict=True):
        answer = model(expected, beam=1)
        assert (word, output) == (expected, answer.text)
        assert score == pytest.approx(answer.score, abs=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second loopback address")
def test_ray_listens_on_loopback_only(facts):
    assert facts["address"].startswith("127.")


# Without Ray.


def test_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(RegardError) as refused:
        regard.bulk.predict(tmp_path / "in.txt", MODEL, tmp_path / "out.txt")
    assert str(refused.value) == ("regard.bulk needs the extra 'ray': pip install 'regard[ray]'")


def test_error_of_a_worker_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "bad.txt").write_bytes(b"bank\n" * 24 + b"\xff\n")
    files, out = (str(tmp_path / "bad.txt"),), str(tmp_path / "out.txt")
    job = bulk.BulkJob(str(find_model(MODEL)), files, out, parts=2, settings={"device": "cpu"})
    (good, bad) = bulk.PartPredictor(job)({"item": [1, 2]})["error"]
    assert not good
    assert bad.startswith(f"{tmp_path}/bad.txt:25: byte 1 of the line, 0xFF,")
    assert "\n" not in bad
    assert not (tmp_path / "out.txt.shard-002-of-002").exists()


def test_predictor_names_a_missing_column(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(RegardError, match=r"no column 'text'; it has 'line'"):
        bulk.Predictor(MODEL)({"line": ["attention"]})


def test_parts_follow_the_size_and_an_earlier_run(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"a\n")
    large.touch()
    os.truncate(large, 100 * bulk.PART_BYTES + 1)
    assert bulk._choose_parts(tmp_path / "out", [str(small)], 2) == 8
    assert bulk._choose_parts(tmp_path / "out", [str(large)], 2) == 101
    Shard(2, 5).path(tmp_path / "out").touch()
    assert bulk._choose_parts(tmp_path / "out", [str(large)], 2) == 5
