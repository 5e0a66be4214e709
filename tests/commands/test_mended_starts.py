"""How commands start, and start again: faults that were found by trying, each of which stays mended."""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from regard import bundle as bundles
from regard.errors import RegardError
from regard.train import metrics
from regard.train.journal import Journal, JournalError
from regard.train.run import run
from tests.commands.small import Quiet, arguments, job, pairs, regard, written


def done(*words: object, data: bytes = b"", shell: str = "", **environment: str) -> tuple[int, bytes, str]:
    command: list[str] = [sys.executable, "-m", "regard", *map(str, words)]
    if shell:
        command = ["sh", "-c", f'"$@" {shell}', "sh", *command]
    told = subprocess.run(command, input=data, capture_output=True, env={**os.environ, **environment}, timeout=100)
    return told.returncode, told.stdout, told.stderr.decode()


def test_a_run_killed_while_it_sets_bad_lines_aside_goes_on(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv")
    home = tmp_path / "run/data"
    home.mkdir(parents=True)
    (home / "bad-lines.txt.partial").write_text("half a li")  # as it is left then
    words = arguments(data, tmp_path / "run", "--steps", "2", "--bad-lines", "skip")
    regard(capsys, *words)
    assert not (home / "bad-lines.txt.partial").exists()


def test_a_second_process_is_refused_before_it_touches_the_first_ones_data(tmp_path):
    data, half = written(tmp_path / "pairs.tsv"), tmp_path / "run/data/ids.partial"
    half.mkdir(parents=True)
    (half / "source.ids").write_bytes(b"what the first has written so far")
    with Journal(tmp_path / "run/journal.jsonl"), pytest.raises(JournalError, match="another process trains in"):
        run(job(data, tmp_path / "run"), Quiet())
    assert (half / "source.ids").read_bytes() == b"what the first has written so far"
    assert [path.name for path in (tmp_path / "run/data").iterdir()] == ["ids.partial"]


def test_a_run_that_is_refused_leaves_nothing_behind(tmp_path):
    missing = tmp_path / "run/data/ids"
    missing.parent.mkdir(parents=True)
    missing.write_text("a stranger's file")
    with pytest.raises(RegardError, match="is a file, where a run keeps its data"):
        run(job(written(tmp_path / "pairs.tsv"), tmp_path / "run"), Quiet())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["data"]
    with Journal(tmp_path / "new/journal.jsonl"):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    with Journal(tmp_path / "mine/journal.jsonl"), pytest.raises(JournalError, match="another process"):
        Journal(tmp_path / "mine/journal.jsonl")
    assert list((tmp_path / "mine").iterdir()) == []  # the folder was there before


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("train.bpe_dropout=0.5", "train.bpe_dropout = 0.5 respells pieces of bpe, and neither side has any"),
        ("text.vocabulary_size=40", "text.vocabulary_size = 40 is for pieces (bpe, unigram); both sides are"),
    ],
)
def test_a_setting_that_was_refused_can_be_taken_back(tmp_path, capsys, setting, said):
    words = arguments(written(tmp_path / "pairs.tsv"), tmp_path / "run", "--steps", "2")
    _, told = regard(capsys, *words, "--set", setting, code=2)
    assert f"\nregard: {said}" in f"\n{told}"
    regard(capsys, *words)


def test_a_setting_that_a_run_began_with_is_not_kept_in_silence(tmp_path, capsys):
    words = arguments(written(tmp_path / "pairs.tsv"), tmp_path / "run", "--steps", "2")
    regard(capsys, *words, "--set", "train.learning_rate=0.002")
    _, said = regard(capsys, *words, code=2)
    assert said == (
        "regard: this run began with other settings: train.learning_rate was 0.002 and is not given. "
        "Use the old ones, or another --out\n"
    )
    regard(capsys, *words, "--set", "train.learning_rate=0.002")


def test_a_numbered_column_has_its_header_too(bundle, tmp_path, capsys):
    table = tmp_path / "table.tsv"
    table.write_text("source\ttarget\nab\tba\nbc\tcb\n")
    by_name, _ = regard(capsys, "predict", bundle, "--input", table, "--column", "source")
    by_number, _ = regard(capsys, "predict", bundle, "--input", table, "--column", "1")
    assert by_number == by_name
    assert len(by_number.splitlines()) == 2
    table.write_text("ab\tba\nbc\tcb\n")
    assert len(regard(capsys, "predict", bundle, "--input", table, "--column", "2")[0].splitlines()) == 2


def test_texts_by_length_are_cut_as_all_are():
    english, chinese = ["the cat sat on the mat today"], ["我们今天去公园散步吧朋友", "他昨天在图书馆看书学习"] * 3
    said, right = [*english, *chinese], [[line] for line in [*english, *chinese]]
    assert metrics.spacing(right) == "char"
    parts = metrics.by_length([9] + [3] * len(chinese), said, right, kind="bpe", task="text", edges=(6,))
    assert metrics.spacing(right[:1]) == "13a"  # alone they would be cut otherwise
    assert all("tok:char" in part["bleu_signature"] for part in parts)


def test_a_bundle_between_its_two_renames_is_found_by_every_command(bundle, tmp_path, capsys):
    shutil.copytree(bundle, tmp_path / ".b.old")
    moved, plain = (regard(capsys, "predict", folder, "ab", "bc")[0] for folder in (tmp_path / "b", bundle))
    assert moved == plain
    assert "weights.safetensors" in regard(capsys, "inspect", tmp_path / "b")[0]
    assert bundles.locate(tmp_path / "b") == tmp_path / ".b.old"


def test_an_output_that_knows_few_letters_gets_the_metrics(bundle, tmp_path):
    gold = written(tmp_path / "test.tsv", pairs(20, seed=9))
    code, said, told = done("evaluate", bundle, gold, "--device", "cpu", PYTHONIOENCODING="ascii")
    assert (code, told) == (0, "")
    assert b"95 % interval" in said
    assert done("--help", PYTHONIOENCODING="cp1252")[0] == 0


@pytest.mark.parametrize(
    ("words", "shell"),
    [(["predict", "BUNDLE"], "<&-"), (["predict", "BUNDLE", "ab"], ">&-"), (["train", "-", "--steps", "1"], "<&-")],
)
def test_closed_streams_are_empty_ones(bundle, tmp_path, words, shell):
    words = [str(bundle) if word == "BUNDLE" else word for word in words]
    out = ["--out", str(tmp_path / "run")] if words[0] == "train" else []
    code, _, said = done(*words, *out, "--device", "cpu", shell=shell)
    assert "Traceback" not in said
    assert (code, said) == ((2, "regard: standard input is empty\n") if words[0] == "train" else (0, ""))


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
def test_a_file_whose_name_is_no_utf8(tmp_path, capsys):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.tsv")
    shutil.copy(written(tmp_path / "pairs.tsv"), name)
    code, _, said = done("train", name, "--steps", "2", "--size", "tiny", "--out", tmp_path / "run", "--device", "cpu")
    assert code == 0, said
    assert "Traceback" not in said
    card = json.loads((tmp_path / "run/bundle/card.json").read_text())
    assert "\ufffd.tsv" in card["data"]


def test_files_that_an_option_took_are_asked_for(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv")
    _, said = regard(capsys, "train", "--held-out", data, data, code=2)
    assert "name them first, for --targets and --held-out take all names that follow" in said


def test_compressed_standard_input_is_unpacked(bundle, capsys, monkeypatch):
    def said(data: bytes, code: int = 0) -> tuple[str, str]:
        buffer = io.BufferedReader(io.BytesIO(data))
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=buffer, isatty=lambda: False))
        return regard(capsys, "predict", bundle, code=code)

    plain = said(b"ab\nbc\n")
    assert said(gzip.compress(b"ab\nbc\n")) == plain
    assert "standard input is cut short" in said(gzip.compress(b"ab\n" * 999)[:-9], code=2)[1]
    assert "convert it: iconv" in said("ab\n".encode("utf-16"), code=2)[1]


def test_smaller_things(bundle, tmp_path, capsys):
    gold = tmp_path / "test.tsv"
    gold.write_text("ab\tba\n" * 3)
    said, _ = regard(capsys, "evaluate", bundle, gold)
    assert said.startswith("1 questions with 1 right answers")
    array = tmp_path / "pairs.json"
    array.write_text('[{"source": "a", "target": "b"}, {"source": "c", "target": "d"}]')
    _, told = regard(capsys, "evaluate", bundle, array, code=2)
    assert "is one JSON array; write one pair per line (jq -c '.[]')" in told
    (tmp_path / "out.progress").write_text('{"asked": {}}')
    (tmp_path / "out.partial").write_text("")
    _, told = regard(capsys, "predict", bundle, "--input", gold, "--output", tmp_path / "out", code=2)
    assert "was altered" in told
