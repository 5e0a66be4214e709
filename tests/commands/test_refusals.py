"""What a person may get wrong with a bundle: one line on standard error, exit code 2, and no file left behind."""

import shutil

import pytest

from tests.commands.small import regard, written


def refused(capsys, *words) -> str:
    out, said = regard(capsys, *words, code=2)
    assert out == ""
    (line,) = said.splitlines()
    assert line.startswith("regard: ")
    return line.removeprefix("regard: ")


COMMANDS = (("predict", "abc"), ("evaluate", "{}"), ("score", "{}"), ("inspect",))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_folders_that_are_no_bundle(bundle, tmp_path, capsys, command):
    data = written(tmp_path / "pairs.tsv")
    name, *more = (word.format(data) for word in command)
    for folder, said in (
        (tmp_path / "none", f"there is no bundle '{tmp_path / 'none'}'; give a folder written by `regard train`"),
        (data, f"'{data}' is a file, not a bundle; give a folder written by `regard train`"),
        (tmp_path, f"'{tmp_path}' is not a bundle: it has no manifest.json; give a folder written by `regard train`"),
        (bundle.parent, f"'{bundle.parent}' is the folder of a run; its bundle is '{bundle}'"),
    ):
        assert refused(capsys, name, folder, *more) == said


def test_damaged_bundles(bundle, tmp_path, capsys):
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    weights = copy / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert (
        refused(capsys, "predict", copy, "abc") == f"'{weights}' was altered: its sha256 differs; copy the bundle again"
    )
    weights.write_bytes(content[:-10])
    said = f"'{weights}' has {len(content) - 10} bytes instead of {len(content)}; copy the bundle again"
    assert refused(capsys, "inspect", copy) == said


def test_inputs_that_cannot_be_read(bundle, tmp_path, capsys):
    broken, table = tmp_path / "broken.txt", tmp_path / "table.tsv"
    broken.write_bytes(b"abc\ncaf\xe9\n")
    table.write_text("abc\tx\nlonely\n")
    for words, said in (
        (["--input", tmp_path / "none"], f"cannot read '{tmp_path / 'none'}': No such file or directory"),
        (["--input", tmp_path], f"'{tmp_path}' is a folder; name the files in it"),
        (["--input", broken], f"{broken}:2: byte 4 of the line, 0xE9, is not valid UTF-8; mend the line"),
        (
            ["--input", table, "--column", "5"],
            f"{table}, read as tab-separated, has 2 columns; there is no column 5 (counted from 1)",
        ),
        (
            ["--input", table, "--column", "word"],
            f"{table}: the first line has no column 'word'; choose from 'abc', 'x'",
        ),
        (
            ["--input", table, "--column", "2"],
            f"{table}:2: 1 column only, but the source is column 2; mend the line",
        ),
        (["abc", "--input", table], f"give texts or --input, not both; got 'abc' and '{table}'"),
        (["abc", "--column", "2"], "--column is for files that are tables; name them with --input"),
    ):
        assert refused(capsys, "predict", bundle, *words) == said


def test_broken_text_comes_after_the_answers_before_it(bundle, tmp_path, capsys):
    data, out = tmp_path / "broken.txt", tmp_path / "out.txt"
    data.write_bytes(b"abc\n" * 70 + b"caf\xe9\n")
    said = regard(capsys, "predict", bundle, "--input", data, "--output", out, code=2)[1]
    assert said == f"regard: {data}:71: byte 4 of the line, 0xE9, is not valid UTF-8; mend the line\n"
    assert not out.exists()
    data.write_bytes(b"abc\n" * 71)
    regard(capsys, "predict", bundle, "--input", data, "--output", out)
    assert len(out.read_text().splitlines()) == 71


def test_outputs_that_cannot_be_written(bundle, tmp_path, capsys):
    nowhere, data = tmp_path / "no/out.txt", written(tmp_path / "pairs.tsv")
    for words in (["predict", bundle, "abc"], ["evaluate", bundle, data]):
        said = refused(capsys, *words, "--output", nowhere)
        assert said == f"cannot write '{nowhere}': No such file or directory"
    said = refused(capsys, "predict", bundle, "abc", "--output", tmp_path)
    assert said == f"cannot write '{tmp_path}': it is a folder; name a file in it"
    assert {path.name for path in tmp_path.iterdir()} == {"pairs.tsv"}


def test_a_job_that_is_not_the_one_begun(bundle, tmp_path, capsys):
    out = tmp_path / "out.txt"
    (tmp_path / "bad").write_bytes(b"abc\n" * 64 + b"\xff\n")
    words = ["predict", bundle, "--input", tmp_path / "bad", "--output", out]
    regard(capsys, *words, code=2)
    (tmp_path / "bad").write_bytes(b"abc\n" * 64)
    said = refused(capsys, *words, "--beam", "1")
    way = "; ask as before, or begin anew with --restart"
    assert said == f"cannot go on with '{out}.partial': --beam was None and is 1{way}"
    regard(capsys, *words, "--beam", "1", "--restart")
    assert len(out.read_text().splitlines()) == 64


ASKED = {
    "no answers": (["--n-best", "0"], "--n-best must be at least 1; got 0"),
    "narrow beam": (
        ["--n-best", "5", "--beam", "2"],
        "a beam of 2 cannot give 5 answers; widen --beam or lower --n-best",
    ),
    "no beam": (["--beam", "0"], "a beam is at least 1 wide; got 0"),
    "unknown word": (["--require", "x"], "'x' contains symbols that the target vocabulary lacks; use known symbols"),
    "unknown prefix": (["--prefix", "ay"], "'ay' contains symbols that the target vocabulary lacks; use known symbols"),
    "chance untold": (["--top-k", "3"], "--top-k needs --sample"),
    "beam and chance": (["--sample", "--beam", "2"], "--beam is for search, not for --sample; leave one of them out"),
    "no heat": (
        ["--sample", "--temperature", "0"],
        "temperature must be above 0; use greedy search for the most likely output; got 0.0",
    ),
    "way with long ones": (
        ["--long", "cut"],
        "unknown way with long sources 'cut'; choose from 'allow', 'refuse', 'warn'",
    ),
    "no GPU here": (["--device", "cuda"], "device 'cuda' is not available: torch finds no GPU; use --device cpu"),
    "device": (["--device", "gpu"], "unknown device 'gpu'; did you mean 'cpu'?"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_cannot_be_asked(bundle, tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words, said = ASKED[name]
    assert refused(capsys, "predict", bundle, "abc", *words, "--output", tmp_path / "out") == said
    assert list(tmp_path.iterdir()) == []


def test_pairs_that_cannot_be_read(bundle, tmp_path, capsys):
    data = tmp_path / "pairs.tsv"
    data.write_text("a\tb\nlonely\n")
    mend = "1 column only, but the target is column 2; fix the line, or skip it with --bad-lines skip"
    for command in ("evaluate", "score"):
        assert regard(capsys, command, bundle, data, code=2)[1].endswith(f"{data}:2: {mend}\n")
        assert refused(capsys, command, bundle, data, "--source", "word", "--target", "2") == (
            f"{data}: the first line has no column 'word'; choose from 'a', 'b'"
        )
    assert refused(capsys, "evaluate", bundle).startswith("no files of pairs given; name them first")
    way = "give files of pairs, or --pair SOURCE TARGET; one of the two"
    assert refused(capsys, "score", bundle) == refused(capsys, "score", bundle, data, "--pair", "a", "b") == way
    _, said = regard(capsys, "evaluate", bundle, data, "--bad-lines", "skip")
    assert said == f"skipped 1 bad line: 1 missing column (first at {data}:2)\n"
