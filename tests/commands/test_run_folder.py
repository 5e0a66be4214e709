"""The folder of a training run: one process at a time, nothing left by a refused run."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from regard.errors import RegardError
from regard.training.run import run
from regard.training.run_log import RunLog, RunLogError
from tests.commands.small import Quiet, arguments, job, regard, written


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    data = written(tmp_path / "pairs.tsv")
    with RunLog(tmp_path / "run/log.jsonl"), pytest.raises(RunLogError) as refused:
        run(job(data, tmp_path / "run"), Quiet())
    run_folder = str(tmp_path / "run")
    assert (
        str(refused.value)
        == f"another process trains in {run_folder!r}; wait until it ends, or use another --out"
    )
    run(job(data, tmp_path / "run"), Quiet())


def done(
    *words: object, data: bytes = b"", shell: str = "", **environment: str
) -> tuple[int, bytes, str]:
    command: list[str] = [sys.executable, "-m", "regard", *map(str, words)]
    if shell:
        command = ["sh", "-c", f'"$@" {shell}', "sh", *command]
    finished = subprocess.run(
        command, input=data, capture_output=True, env={**os.environ, **environment}, timeout=900
    )
    return finished.returncode, finished.stdout, finished.stderr.decode()


def test_resume_after_a_kill_while_saving_bad_lines(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv")
    home = tmp_path / "run/data"
    home.mkdir(parents=True)
    (home / "bad-lines.txt.partial").write_text("half a li")  # as it is left then
    words = arguments(data, tmp_path / "run", "--steps", "2", "--bad-lines", "skip")
    regard(capsys, *words)
    assert not (home / "bad-lines.txt.partial").exists()


def test_second_process_does_not_touch_the_data(tmp_path):
    data, half = written(tmp_path / "pairs.tsv"), tmp_path / "run/data/ids.partial"
    half.mkdir(parents=True)
    (half / "source.ids").write_bytes(b"what the first has written so far")
    with (
        RunLog(tmp_path / "run/log.jsonl"),
        pytest.raises(RunLogError, match="another process trains in"),
    ):
        run(job(data, tmp_path / "run"), Quiet())
    assert (half / "source.ids").read_bytes() == b"what the first has written so far"
    assert [path.name for path in (tmp_path / "run/data").iterdir()] == ["ids.partial"]


def test_refused_run_leaves_nothing_behind(tmp_path):
    missing = tmp_path / "run/data/ids"
    missing.parent.mkdir(parents=True)
    missing.write_text("a stranger's file")
    with pytest.raises(RegardError, match="is a file, not a data folder; use another --out"):
        run(job(written(tmp_path / "pairs.tsv"), tmp_path / "run"), Quiet())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["data"]
    with RunLog(tmp_path / "new/log.jsonl"):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    with (
        RunLog(tmp_path / "mine/log.jsonl"),
        pytest.raises(RunLogError, match="another process"),
    ):
        RunLog(tmp_path / "mine/log.jsonl")
    assert list((tmp_path / "mine").iterdir()) == []  # the folder was there before


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
def test_file_name_that_is_not_utf8(tmp_path, capsys):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.tsv")
    shutil.copy(written(tmp_path / "pairs.tsv"), name)
    code, _, err = done(
        "train",
        name,
        "--steps",
        "2",
        "--size",
        "tiny",
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
    )
    assert code == 0, err
    assert "Traceback" not in err
    card = json.loads((tmp_path / "run/bundle/card.json").read_text())
    assert "\ufffd.tsv" in card["data"]


@pytest.mark.parametrize("name", ["data/mine.txt", "held_out.jsonl"])
def test_restart_deletes_no_input_or_foreign_file(tmp_path, name):
    whole = job(written(tmp_path / "pairs.tsv"), tmp_path / "run")
    run(whole, Quiet())
    mine = tmp_path / "run" / name
    if name == "held_out.jsonl":
        restarted = job(mine, tmp_path / "run")
        printed = "--restart would delete the input '.*held_out.jsonl'; move it out of '.*run'"
    else:
        mine.write_text("precious")
        restarted, printed = whole, "belongs to no run and would be lost; use another --out"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    with pytest.raises(RegardError, match=printed):
        run(replace(restarted, restart=True), Quiet())
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
