"""`regard predict`: every kind of input and output gives the answers of the model."""

import gzip
import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import types

import pytest
import torch

from regard.answer import Answer
from regard.commands.formats import format_alignment, format_answers
from regard.commands.options import OutputFormat
from regard.commands.output_files import ResumableFile
from regard.loading import load
from tests.commands.small import pairs, regard, start

TEXTS = ["abc", "dab", "bbca"]


@pytest.fixture(scope="module")
def model(bundle):
    return load(bundle)


def stdin(monkeypatch, content: bytes) -> None:
    stream = types.SimpleNamespace(
        buffer=io.BufferedReader(io.BytesIO(content)), isatty=lambda: False
    )
    monkeypatch.setattr(sys, "stdin", stream)


def test_texts_are_answered_in_order(bundle, model, capsys):
    out, err = regard(capsys, "predict", bundle, *TEXTS)
    assert out.splitlines() == [model(text).text for text in TEXTS]
    assert err == ""


def test_files_pipes_and_tables_give_the_same_answers(
    bundle, model, words, tmp_path, monkeypatch, capsys
):
    lines = words.read_text().splitlines()
    right = [str(answer) for answer in model.many(lines)]
    assert right[5] == ""
    assert len(set(right)) > 20
    (tmp_path / "packed.gz").write_bytes(gzip.compress(words.read_bytes()))
    (tmp_path / "table.tsv").write_text("".join(f"{n}\t{line}\n" for n, line in enumerate(lines)))
    (tmp_path / "table.jsonl").write_text(
        "".join(json.dumps({"word": line}) + "\n" for line in lines)
    )
    (tmp_path / "windows.txt").write_bytes(
        b"\xef\xbb\xbf" + words.read_bytes().replace(b"\n", b" \r\n")
    )
    for more in (
        ("--input", words),
        ("--input", tmp_path / "packed.gz"),
        ("--input", tmp_path / "windows.txt"),
        ("--input", tmp_path / "table.jsonl", "--column", "word"),
    ):
        assert regard(capsys, "predict", bundle, *more)[0].splitlines() == right, more
    table = ("--input", tmp_path / "table.tsv", "--column", "2")
    side_by_side = [f"{line}\t{answer}" for line, answer in zip(lines, right, strict=True)]
    assert regard(capsys, "predict", bundle, *table)[0].splitlines() == side_by_side
    assert (
        regard(capsys, "predict", bundle, "--input", words, words)[0].splitlines() == right + right
    )
    for more in ((), ("-",), ("--input", "-")):
        stdin(monkeypatch, (tmp_path / "windows.txt").read_bytes())
        assert regard(capsys, "predict", bundle, *more)[0].splitlines() == right, more


def test_last_line_without_end_and_empty_file(bundle, model, tmp_path, monkeypatch, capsys):
    stdin(monkeypatch, b"abc\n\ndab")
    assert regard(capsys, "predict", bundle)[0].split("\n") == [
        str(model("abc")),
        "",
        str(model("dab")),
        "",
    ]
    stdin(monkeypatch, b"")
    assert regard(capsys, "predict", bundle) == ("", "")
    (tmp_path / "none").write_text("")
    assert regard(capsys, "predict", bundle, "--input", tmp_path / "none") == ("", "")


def test_scores_and_n_best_are_columns(bundle, model, capsys):
    out, _ = regard(capsys, "predict", bundle, "abc", "--scores")
    assert out == f"{model('abc').logp:.4f}\t{model('abc')}\n"
    out, _ = regard(capsys, "predict", bundle, *TEXTS, "--n-best", "3")
    rows = [line.split("\t") for line in out.splitlines()]
    right = [
        [str(n), f"{one.score:.4f}", one.text]
        for n, text in enumerate(TEXTS, 1)
        for one in model.best(text, 3)
    ]
    assert rows == right
    assert len(rows) == 9


def test_alignments_name_the_most_attended_letter(bundle, model, capsys):
    out, _ = regard(capsys, "predict", bundle, "abcd", "--alignments")
    text, links = out.rstrip("\n").split("\t")
    weights = model.align("abcd").alignment
    right = []
    for j in range(len(text)):
        i = max(range(5), key=lambda i: float(weights[j, i]))
        right += [f"{i}-{j}"] if i < 4 else []
    assert links.split() == right
    assert links


def test_line_ends_and_tabs_become_spaces(model):
    answer = Answer("x", "a\tb\nc\rd", [], [], [-1.0], -1.0)
    assert format_answers(model, 1, [answer], OutputFormat(scores=True)) == "-1.0000\ta b c d\n"
    assert (
        json.loads(format_answers(model, 1, [answer], OutputFormat(json=True)))["text"]
        == "a\tb\nc\rd"
    )
    assert format_answers(model, 7, [answer] * 3, OutputFormat(), 2) == "7\t-1.0000\ta b c d\n" * 2
    lost = Answer("x", "a", [3], ["a"], [float("-inf"), 0.0], float("-inf"))
    assert json.loads(format_answers(model, 1, [lost], OutputFormat(json=True)))["logps"] == [
        None,
        0,
    ]


def test_alignment_links_by_hand():
    weights = torch.tensor([[0.1, 0.7, 0.2], [0.2, 0.1, 0.7], [0.5, 0.3, 0.2], [0.0, 0.0, 1.0]])
    answer = Answer("ab", "cde", [3, 4, 5], ["c", "d", "e"], [0.0] * 4, 0.0, alignment=weights)
    assert (
        format_alignment(answer) == "1-0 0-2"
    )  # d looked at the end most, and the end itself is no token


def test_json_fields(bundle, model, capsys):
    out, _ = regard(
        capsys, "predict", bundle, "abcd", "", "ab#", "--json", "--n-best", "2", "--alignments"
    )
    first, empty, strange = (json.loads(line) for line in out.splitlines())
    best, second = model.best("abcd", 2)
    assert (first["source"], first["text"], first["tokens"]) == ("abcd", best.text, best.tokens)
    assert first["logps"] == pytest.approx(best.logps, abs=1e-6)
    assert (
        first["logp"]
        == pytest.approx(sum(first["logps"]), abs=1e-5)
        == pytest.approx(first["score"], abs=1e-5)
    )
    assert [one["text"] for one in first["alternatives"]] == [second.text]
    assert first["source_tokens"] == list("abcd")
    torch.testing.assert_close(
        torch.tensor(first["alignment"]), model.align("abcd").alignment, atol=1e-5, rtol=0
    )
    assert {"source", *first["alternatives"][0]} <= set(first)
    assert (empty["text"], empty["tokens"], empty["logp"], empty["alternatives"]) == ("", [], 0, [])
    assert strange["unknown"] == ["#"]
    plain = json.loads(regard(capsys, "predict", bundle, "abcd", "--json")[0])
    assert set(plain) == {"source", "text", "tokens", "logps", "logp", "score", "confidence"}


def test_decoding_options_take_effect(bundle, model, capsys):
    def one(*more) -> str:
        return regard(capsys, "predict", bundle, "abca", *more)[0].rstrip("\n")

    assert one("--beam", "1") == str(model("abca", model.search(beam=1)))
    assert one("--prefix", "dd").startswith("dd")
    assert len(one("--min-length", "9")) >= 9
    assert len(one("--max-length", "2")) <= 2
    assert "a" not in one("--ban", "a", "--ban", "b")
    assert "b" not in one("--ban", "a", "--ban", "b")
    assert "dd" in one("--require", "dd")
    assert len(set(one("--no-repeat-ngram", "1"))) == len(one("--no-repeat-ngram", "1"))
    drawn = [one("--sample", "--seed", str(seed), "--temperature", "3") for seed in range(6)]
    assert len(set(drawn)) > 1
    assert drawn[0] == model.sample("abca", seed=0, temperature=3.0)[0].text
    assert one("--sample", "--top-k", "1", "--temperature", "3") == one("--beam", "1")
    assert one("--sample", "--ban", "a", "--temperature", "9").count("a") == 0


def test_unknown_symbols_warn_and_are_then_counted(bundle, tmp_path, capsys):
    (tmp_path / "strange.txt").write_text("ab\n" + "a€b\n" * 5 + "a\tb\n")
    out, err = regard(capsys, "predict", bundle, "--input", tmp_path / "strange.txt")
    assert len(out.splitlines()) == 7
    place = tmp_path / "strange.txt"
    assert err.splitlines() == [
        *(f"regard: warning: {place}:{n}: unknown symbols '€'" for n in (2, 3, 4)),
        "regard: warning: 3 more lines with unknown symbols",
    ]
    _, err = regard(capsys, "predict", bundle, "a\tb")
    what = r"text 1: unknown symbols '\t'; if the input is a table, name the --column"
    assert err == f"regard: warning: {what}\n"


def test_long_sources_warn_or_are_refused_or_allowed(bundle, model, capsys):
    long = "abcd" * 5
    most = model.longest_source
    what = f"{long!r} has 20 tokens, more than any training source ({most})"
    out, err = regard(capsys, "predict", bundle, long)
    assert err == f"regard: warning: {what}; the answer may be poor\n"
    assert out.strip()
    assert regard(capsys, "predict", bundle, long, "--long", "allow") == (out, "")
    _, err = regard(capsys, "predict", bundle, "ab", long, "--long", "refuse", code=2)
    assert err == f"regard: {what}; shorten it, or set long to allow\n"


def test_slow_pipe_is_answered_line_by_line(bundle, model):
    process = start(["predict", str(bundle)], stdin=subprocess.PIPE)
    for word in ("abc", "", "dab"):
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 120)[0], "no answer came"
        assert process.stdout.readline() == f"{model(word)}\n"  # before the next line is written
    _, err = process.communicate(timeout=900)
    assert (process.returncode, err) == (0, "")


def test_closed_pipe_ends_quietly(bundle, tmp_path):
    (tmp_path / "many").write_text("".join(f"{word}\n" for word, _ in pairs(1_300)) * 20)
    with start(
        ["predict", str(bundle), "--input", str(tmp_path / "many"), "--beam", "1"]
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, "")


def test_full_disk_is_one_line(bundle):
    with open("/dev/full", "w") as full:
        process = start(["predict", str(bundle), "abc"], stdout=full)
        _, err = process.communicate(timeout=900)
    assert (process.returncode, err) == (2, "regard: [Errno 28] No space left on device\n")


def test_a_source_that_is_too_long_is_rejected(bundle, tmp_path, capsys):
    data, out = tmp_path / "lines.txt", tmp_path / "out.txt"
    data.write_text(f"abc\n{'ab' * 345_000}\n\ndab\n")
    expected, _ = regard(capsys, "predict", bundle, "abc", "dab")
    first, last = expected.splitlines()
    printed, err = regard(capsys, "predict", bundle, "--input", data, code=1)
    assert printed == f"{first}\n\n\n{last}\n"
    warning, summary = err.splitlines()
    assert warning.startswith(f"regard: warning: {data}:2: rejected: 'abab")
    assert "has 690,000 characters, more than the limit of 1,000 tokens; shorten it" in warning
    assert summary == (
        "regard: 1 source was rejected and has an empty answer; shorten it, or raise "
        "--max-source-length"
    )
    printed, _ = regard(capsys, "predict", bundle, "--input", data, "--json", code=1)
    rejected = json.loads(printed.splitlines()[1])
    assert (rejected["text"], rejected["score"], rejected["logp"]) == ("", None, None)
    assert rejected["error"].endswith("shorten it, or raise max_source_length")
    words = ["predict", bundle, "--input", data, "--output", out, "--n-best", "2"]
    regard(capsys, *words, "--alignments", code=1)
    assert "2\t-inf\t\t" in out.read_text().splitlines()


def test_a_resumed_job_still_reports_rejected_sources(bundle, tmp_path, capsys, monkeypatch):
    data, out = tmp_path / "lines.txt", tmp_path / "out.txt"
    data.write_text("abc\n" * 63 + "ab" * 4_000 + "\n" + "dab\n" * 70)
    write = ResumableFile.write

    def stop(self, *window):
        write(self, *window)
        raise KeyboardInterrupt

    words = ["predict", bundle, "--input", data, "--output", out]
    with monkeypatch.context() as patch:
        patch.setattr(ResumableFile, "write", stop)
        regard(capsys, *words, code=130)
    _, err = regard(capsys, *words, code=1)
    assert err.splitlines()[0] == f"{out}: resuming after 64 lines"
    assert err.splitlines()[-1].startswith("regard: 1 source was rejected and has an empty answer")
    assert len(out.read_text().splitlines()) == 134


def test_a_long_search_obeys_sigterm(bundle, capsys):
    """Without a limit, this source would take many minutes."""
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    words = ["--max-source-length", "0", "--long", "allow", "--engine", "native"]
    out, _ = regard(capsys, "predict", bundle, "ab" * 200_000, *words, code=143)
    timer.join()
    assert out == ""
