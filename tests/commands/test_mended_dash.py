"""A dash is a text where texts are given and standard input where files are; and what help says of options is so."""

import io
from types import SimpleNamespace

import pytest

from tests.commands.small import regard


def stdin(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(
        "sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content)), isatty=lambda: False)
    )


def test_a_dash_among_texts_is_a_text(capsys):
    out, _ = regard(capsys, "predict", "spelling", "cat", "-", "./-", "--json", "--device", "cpu")
    assert [line.split('"')[3] for line in out.splitlines()] == ["cat", "-", "./-"]


def test_a_dash_in_a_pair_is_scored(capsys):
    out, _ = regard(capsys, "score", "spelling", "--pair", "-", "D AE SH", "--device", "cpu")
    assert out.split("\t")[1:] == ["-", "D AE SH\n"]


@pytest.mark.parametrize("option", ["--ban", "--prefix", "--require"])
def test_a_dash_is_what_an_option_says_it_is(capsys, option):
    _, said = regard(capsys, "predict", "spelling", "cat", option, "-", "--device", "cpu", code=2)
    assert said == "regard: '-' contains symbols that the target vocabulary lacks; use known symbols\n"


def test_a_dash_alone_or_as_a_file_is_still_standard_input(monkeypatch, capsys):
    right, _ = regard(capsys, "predict", "spelling", "cat", "--device", "cpu")
    for more in (("-",), ("--input", "-")):
        stdin(monkeypatch, b"cat\n")
        assert regard(capsys, "predict", "spelling", *more, "--device", "cpu")[0] == right


def test_a_dash_that_nobody_wants_is_named_as_it_was_typed(capsys):
    for words in (("-",), ("inspect", "spelling", "-"), ("predict", "spelling", "cat", "--beam", "-")):
        _, said = regard(capsys, *words, code=2)
        assert "\0" not in said
        assert "./-" not in said
        assert "x00" not in said
        assert "-" in said.replace("--beam", "")


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (("--length", "nan"), "the length penalty α must be between -10 and 10; got nan"),
        (("--length", "-inf", "--beam", "1"), "the length penalty α must be between -10 and 10; got -inf"),
        (("--repetition", "inf"), "repetition_penalty must be between 0.000001 and 1000000 (1 = off); got inf"),
        (("--longest", "-1"), "max_length must be at least 0; got -1"),
        (("--sample", "--temperature", "inf"), "temperature must be from 0.000001 to 1000000; got inf"),
    ],
)
def test_numbers_out_of_range_are_one_line(capsys, options, refusal):
    assert regard(capsys, "predict", "spelling", "cat", *options, "--device", "cpu", code=2) == (
        "",
        f"regard: {refusal}\n",
    )


def test_help_names_no_option_that_a_command_has_not(capsys):
    for command, has in (("evaluate", False), ("predict", True)):
        out, _ = regard(capsys, command, "--help")
        assert ("--n-best" in out) == has
        assert "as many as there are answers to give" in " ".join(out.replace("│", " ").split())
