"""Inputs of the commands: columns, compressed and closed streams, bundles being saved."""

import gzip
import io
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from regard import bundle as bundles
from regard.commands.inputs import open_inputs
from tests.commands.small import pairs, regard, written


@pytest.mark.parametrize(("name", "between"), [("a.tsv", "\t"), ("a.csv", ",")])
@pytest.mark.parametrize("blank", ["", "\n", "\n \r\n\n"])
def test_column_starts_after_its_header(tmp_path, name, between, blank):
    rows = (("id", "word"), ("1", "cat"), ("2", "dog"))
    (tmp_path / name).write_text(
        blank + "".join(f"{between.join(row)}\n" for row in rows), newline=""
    )
    inputs = open_inputs(files=[str(tmp_path / name)], column="word")
    assert [line.text for window in inputs.windows() for line in window] == ["cat", "dog"]


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


def test_numbered_column_skips_the_header(bundle, tmp_path, capsys):
    table = tmp_path / "table.tsv"
    table.write_text("source\ttarget\nab\tba\nbc\tcb\n")
    by_name, _ = regard(capsys, "predict", bundle, "--input", table, "--column", "source")
    by_number, _ = regard(capsys, "predict", bundle, "--input", table, "--column", "1")
    assert by_number == by_name
    assert [line.split("\t")[0] for line in by_number.splitlines()] == ["source", "ab", "bc"]
    table.write_text("ab\tba\nbc\tcb\n")
    assert (
        len(regard(capsys, "predict", bundle, "--input", table, "--column", "2")[0].splitlines())
        == 2
    )


def test_bundle_is_found_between_two_renames(bundle, tmp_path, capsys):
    shutil.copytree(bundle, tmp_path / ".b.old")
    moved, plain = (
        regard(capsys, "predict", folder, "ab", "bc")[0] for folder in (tmp_path / "b", bundle)
    )
    assert moved == plain
    assert "weights.safetensors" in regard(capsys, "inspect", tmp_path / "b")[0]
    assert bundles.locate(tmp_path / "b") == tmp_path / ".b.old"


def test_ascii_terminal_gets_the_metrics(bundle, tmp_path):
    gold = written(tmp_path / "test.tsv", pairs(20, seed=9))
    code, out, err = done("evaluate", bundle, gold, "--device", "cpu", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert b"95 % interval" in out
    assert done("--help", PYTHONIOENCODING="cp1252")[0] == 0


@pytest.mark.parametrize(
    ("words", "shell"),
    [
        (["predict", "BUNDLE"], "<&-"),
        (["predict", "BUNDLE", "ab"], ">&-"),
        (["train", "-", "--steps", "1"], "<&-"),
    ],
)
def test_closed_streams_count_as_empty(bundle, tmp_path, words, shell):
    words = [str(bundle) if word == "BUNDLE" else word for word in words]
    out = ["--out", str(tmp_path / "run")] if words[0] == "train" else []
    code, _, err = done(*words, *out, "--device", "cpu", shell=shell)
    assert "Traceback" not in err
    assert (code, err) == (
        (2, "regard: standard input is empty\n") if words[0] == "train" else (0, "")
    )


def test_compressed_standard_input_is_unpacked(bundle, capsys, monkeypatch):
    def evaluate_bytes(data: bytes, code: int = 0) -> tuple[str, str]:
        buffer = io.BufferedReader(io.BytesIO(data))
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=buffer, isatty=lambda: False))
        return regard(capsys, "predict", bundle, code=code)

    plain = evaluate_bytes(b"ab\nbc\n")
    assert evaluate_bytes(gzip.compress(b"ab\nbc\n")) == plain
    assert (
        "standard input is truncated after line"
        in evaluate_bytes(gzip.compress(b"ab\n" * 999)[:-9], code=2)[1]
    )
    assert evaluate_bytes("ab\nbc\n".encode("utf-16")) == plain


def test_duplicate_pairs_json_arrays_and_damaged_progress(bundle, tmp_path, capsys):
    gold = tmp_path / "test.tsv"
    gold.write_text("ab\tba\n" * 3)
    out, _ = regard(capsys, "evaluate", bundle, gold)
    assert out.startswith("1 sources with 1 references")
    array = tmp_path / "pairs.json"
    array.write_text('[{"source": "a", "target": "b"}, {"source": "c", "target": "d"}]')
    _, err = regard(capsys, "evaluate", bundle, array, code=2)
    assert "is one JSON array; write one pair per line (jq -c '.[]')" in err
    (tmp_path / "out.progress").write_text('{"options": {}}')
    (tmp_path / "out.partial").write_text("")
    words = ("--input", gold, "--column", "1", "--output", tmp_path / "out")
    _, err = regard(capsys, "predict", bundle, *words, code=2)
    assert "is damaged" in err
