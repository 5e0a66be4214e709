"""The argument "-": a text among texts, standard input among files."""

import io
from types import SimpleNamespace

import pytest

from tests.commands.small import regard


def stdin(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(
        "sys.stdin",
        SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content)), isatty=lambda: False),
    )


def test_dash_among_texts_is_a_text(capsys):
    out, _ = regard(capsys, "predict", "spelling", "cat", "-", "./-", "--json", "--device", "cpu")
    assert [line.split('"')[3] for line in out.splitlines()] == ["cat", "-", "./-"]


def test_dash_in_a_pair_is_scored(capsys):
    out, _ = regard(capsys, "score", "spelling", "--pair", "-", "D AE SH", "--device", "cpu")
    assert out.split("\t")[1:] == ["-", "D AE SH\n"]


@pytest.mark.parametrize("option", ["--ban", "--prefix", "--require"])
def test_dash_is_passed_to_text_options(capsys, option):
    _, err = regard(capsys, "predict", "spelling", "cat", option, "-", "--device", "cpu", code=2)
    assert (
        err == "regard: '-' contains symbols that the target vocabulary lacks; use known symbols\n"
    )


def test_dash_alone_or_as_a_file_is_standard_input(monkeypatch, capsys):
    right, _ = regard(capsys, "predict", "spelling", "cat", "--device", "cpu")
    for more in (("-",), ("--input", "-")):
        stdin(monkeypatch, b"cat\n")
        assert regard(capsys, "predict", "spelling", *more, "--device", "cpu")[0] == right


def test_misplaced_dash_is_reported_as_typed(capsys):
    for words in (
        ("-",),
        ("inspect", "spelling", "-"),
        ("predict", "spelling", "cat", "--beam", "-"),
    ):
        _, err = regard(capsys, *words, code=2)
        assert "\0" not in err
        assert "./-" not in err
        assert "x00" not in err
        assert "-" in err.replace("--beam", "")
