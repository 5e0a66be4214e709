"""Files that a command was given: none is replaced that should not be, and none is taken for what it is not."""

import os
import subprocess
import sys
import threading

import pytest

from regard.train.journal import Journal, JournalError
from regard.train.run import run
from tests.commands.small import Quiet, arguments, job, pairs, regard, written


@pytest.fixture
def gold(tmp_path):
    return written(tmp_path / "test.tsv", pairs(40, seed=9))


def test_what_was_scored_before_a_mistake_is_not_lost(bundle, tmp_path):
    data = tmp_path / "pairs.tsv"
    data.write_text("ab\tba\n" * 100 + "no target\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "regard", "score", str(bundle), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 64
    assert len(done.stderr.splitlines()) == 1


def test_a_pipe_stays_a_pipe(bundle, gold, tmp_path, capsys):
    pipe, seen = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: seen.append(pipe.read_text()), daemon=True)
    reader.start()
    regard(capsys, "evaluate", bundle, gold, "--output", pipe)
    reader.join(20)
    assert pipe.is_fifo()
    assert len(seen[0].splitlines()) == 41


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_an_input_is_not_written_over(bundle, gold, tmp_path, capsys, command):
    before, link = gold.read_text(), tmp_path / "link.tsv"
    link.symlink_to(gold)
    words = {"evaluate": [gold], "predict": ["--input", gold]}[command]
    for output in (gold, link):
        _, said = regard(capsys, command, bundle, *words, "--output", output, code=2)
        assert said == f"regard: --output {str(output)!r} is an input too, and would be lost; name another file\n"
    assert gold.read_text() == before


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_link_leads_on(bundle, gold, tmp_path, capsys, command):
    real, link = tmp_path / "real.tsv", tmp_path / "link.tsv"
    real.write_text("old\n")
    link.symlink_to(real)
    words = {"evaluate": [gold], "predict": ["--input", gold]}[command]
    regard(capsys, command, bundle, *words, "--output", link)
    assert link.is_symlink()
    assert "old" not in real.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"test.tsv", "real.tsv", "link.tsv"}


@pytest.mark.parametrize("words", [["evaluate", "test.tsv"], ["predict", "ab"]])
def test_this_folder_is_no_file(bundle, gold, tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    _, said = regard(capsys, words[0], bundle, words[1], "--output", ".", code=2)
    assert said.endswith("it is a folder; name a file in it\n")


def test_all_that_follows_held_out_is_held_out(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv")
    one, two = (written(tmp_path / f"{n}.tsv", pairs(20, seed=n)) for n in (5, 6))
    words = arguments(data, tmp_path / "run", "--steps", "2", "--held-out", str(one), str(two))
    _, said = regard(capsys, *words)
    assert "pairs: 100 to learn from, " in said


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    data = written(tmp_path / "pairs.tsv")
    with Journal(tmp_path / "run/journal.jsonl"), pytest.raises(JournalError) as refused:
        run(job(data, tmp_path / "run"), Quiet())
    run_folder = str(tmp_path / "run")
    assert str(refused.value) == f"another process trains in {run_folder!r}; wait for it, or use another --out"
    run(job(data, tmp_path / "run"), Quiet())


def test_the_option_goes_over_the_file(tmp_path, capsys):
    data, file = written(tmp_path / "pairs.tsv"), tmp_path / "settings.toml"
    file.write_text('[model]\nkind = "transformer"\n')
    words = ["train", data, "--out", tmp_path / "run", "--steps", "1", "--size", "tiny", "--config", file]
    _, said = regard(capsys, *words, "--family", "recurrent", "--set", "model.cell=lstm", "--set", "text.max_tokens=8")
    assert "recurrent" in said
    file.write_text("model = 3\n")
    _, said = regard(capsys, *words, code=2)
    assert said == f"regard: 'model' in {file} is a group of settings, as [model]; got 3\n"


@pytest.mark.parametrize("device", ["cpu:x", "cuda:99"])
def test_a_device_that_is_not_here(bundle, capsys, device):
    _, said = regard(capsys, "predict", bundle, "ab", "--device", device, code=2)
    assert len(said.splitlines()) == 1
    assert "use " in said
