"""Wrong bundles, inputs and options: one line on stderr, exit code 2, no file left behind."""

import shutil

import pytest

from tests.commands.small import regard, written


def refused(capsys, *words) -> str:
    out, message = regard(capsys, *words, code=2)
    assert out == ""
    (line,) = message.splitlines()
    assert line.startswith("regard: ")
    return line.removeprefix("regard: ")


COMMANDS = (("predict", "abc"), ("evaluate", "{}"), ("score", "{}"), ("inspect",))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_folders_without_a_bundle(bundle, tmp_path, capsys, command):
    data = written(tmp_path / "pairs.tsv")
    name, *more = (word.format(data) for word in command)
    for folder, message in (
        (
            tmp_path / "none",
            f"no bundle at '{tmp_path / 'none'}'; pass a folder written by `regard train`",
        ),
        (data, f"'{data}' is a file, not a bundle; pass a folder written by `regard train`"),
        (
            tmp_path,
            f"'{tmp_path}' is not a bundle: it has no manifest.json; pass a folder written by "
            "`regard train`",
        ),
    ):
        assert refused(capsys, name, folder, *more) == message


def test_damaged_bundles(bundle, tmp_path, capsys):
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    weights = copy / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert (
        refused(capsys, "predict", copy, "abc")
        == f"'{weights}' was altered: its sha256 differs; copy the bundle again"
    )
    weights.write_bytes(content[:-10])
    sizes = f"{len(content) - 10} bytes instead of {len(content)}"
    message = f"'{weights}' has {sizes}; copy the bundle again"
    assert refused(capsys, "inspect", copy) == message


def test_unreadable_inputs(bundle, tmp_path, capsys):
    broken, table = tmp_path / "broken.txt", tmp_path / "table.tsv"
    broken.write_bytes(b"abc\ncaf\xff\n")
    table.write_text("abc\tx\nlonely\n")
    for words, message in (
        (
            ["--input", tmp_path / "none"],
            f"cannot read '{tmp_path / 'none'}': No such file or directory",
        ),
        (["--input", tmp_path], f"'{tmp_path}' is a folder; name the files in it"),
        (
            ["--input", broken],
            f"{broken}:2: byte 4 of the line, 0xFF, is not valid UTF-8; fix the line, or name the "
            "--encoding",
        ),
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
            f"{table}:2: 1 column only, but the source is column 2; fix the line",
        ),
        (["abc", "--input", table], f"give texts or --input, not both; got 'abc' and '{table}'"),
        (["abc", "--column", "2"], "--column applies to table files only; name them with --input"),
    ):
        assert refused(capsys, "predict", bundle, *words) == message


def test_answers_before_broken_text_are_kept(bundle, tmp_path, capsys):
    data, out = tmp_path / "broken.txt", tmp_path / "out.txt"
    data.write_bytes(b"abc\n" * 70 + b"caf\xff\n")
    message = regard(capsys, "predict", bundle, "--input", data, "--output", out, code=2)[1]
    problem = f"{data}:71: byte 4 of the line, 0xFF, is not valid UTF-8"
    assert message == f"regard: {problem}; fix the line, or name the --encoding\n"
    assert not out.exists()
    data.write_bytes(b"abc\n" * 71)
    regard(capsys, "predict", bundle, "--input", data, "--output", out)
    assert len(out.read_text().splitlines()) == 71


def test_unwritable_outputs(bundle, tmp_path, capsys):
    nowhere, data = tmp_path / "no/out.txt", written(tmp_path / "pairs.tsv")
    for words in (["predict", bundle, "abc"], ["evaluate", bundle, data]):
        message = refused(capsys, *words, "--output", nowhere)
        assert message == f"cannot write '{nowhere}': No such file or directory"
    message = refused(capsys, "predict", bundle, "abc", "--output", tmp_path)
    assert message == f"cannot write '{tmp_path}': it is a folder; name a file in it"
    assert {path.name for path in tmp_path.iterdir()} == {"pairs.tsv"}


def test_resume_with_other_options_is_refused(bundle, tmp_path, capsys):
    out = tmp_path / "out.txt"
    (tmp_path / "bad").write_bytes(b"abc\n" * 64 + b"\xff\n")
    words = ["predict", bundle, "--input", tmp_path / "bad", "--output", out]
    regard(capsys, *words, code=2)
    (tmp_path / "bad").write_bytes(b"abc\n" * 64)
    message = refused(capsys, *words, "--beam", "1")
    way = "; use the same bundle, options and input, or start over with --restart"
    assert message == f"cannot resume '{out}.partial': --beam was None, now 1{way}"
    regard(capsys, *words, "--beam", "1", "--restart")
    assert len(out.read_text().splitlines()) == 64


WRONG_OPTIONS = {
    "no answers": (["--n-best", "0"], "n_best must be an integer of at least 1; got 0"),
    "narrow beam": (
        ["--n-best", "5", "--beam", "2"],
        "a beam of 2 cannot return 5 outputs; increase beam or lower n_best",
    ),
    "no beam": (["--beam", "0"], "beam must be an integer of at least 1; got 0"),
    "unknown word": (
        ["--require", "x"],
        "'x' contains symbols that the target vocabulary lacks; use known symbols",
    ),
    "unknown prefix": (
        ["--prefix", "ay"],
        "'ay' contains symbols that the target vocabulary lacks; use known symbols",
    ),
    "chance untold": (
        ["--top-k", "3"],
        "top_k applies to sampling only; leave it out, or set sample",
    ),
    "beam and chance": (
        ["--sample", "--beam", "2"],
        "beam applies to search only; leave it out, or leave out sample",
    ),
    "no heat": (
        ["--sample", "--temperature", "0"],
        "temperature must be above 0; use greedy search for the most likely output; got 0.0",
    ),
    "way with long ones": (
        ["--long", "cut"],
        "long must be warn, refuse or allow; got 'cut'",
    ),
    "no GPU here": (
        ["--device", "cuda"],
        "device 'cuda' is not available: torch finds no GPU; use --device cpu",
    ),
    "device": (["--device", "gpu"], "unknown device 'gpu'; did you mean 'cpu'?"),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_wrong_options(bundle, tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words, message = WRONG_OPTIONS[name]
    assert (
        refused(capsys, "predict", bundle, "abc", *words, "--output", tmp_path / "out") == message
    )
    assert list(tmp_path.iterdir()) == []


def test_unreadable_pairs(bundle, tmp_path, capsys):
    data = tmp_path / "pairs.tsv"
    data.write_text("a\tb\nlonely\n")
    problem = "1 column only, but the target is column 2"
    mend = f"{problem}; fix the line, or skip it with --bad-lines skip"
    for command in ("evaluate", "score"):
        assert regard(capsys, command, bundle, data, code=2)[1].endswith(f"{data}:2: {mend}\n")
        assert refused(capsys, command, bundle, data, "--source", "word", "--target", "2") == (
            f"{data}: the first line has no column 'word'; choose from 'a', 'b'"
        )
    assert refused(capsys, "evaluate", bundle).startswith("no files of pairs given; put them first")
    way = "give either files of pairs or --pair SOURCE TARGET"
    assert (
        refused(capsys, "score", bundle)
        == refused(capsys, "score", bundle, data, "--pair", "a", "b")
        == way
    )
    _, message = regard(capsys, "evaluate", bundle, data, "--bad-lines", "skip")
    assert message == f"skipped 1 bad line: 1 missing column (first at {data}:2)\n"


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (("--length-penalty", "nan"), "the length penalty α must be between -10 and 10; got nan"),
        (
            ("--length-penalty", "-inf", "--beam", "1"),
            "the length penalty α must be between -10 and 10; got -inf",
        ),
        (
            ("--repetition-penalty", "inf"),
            "repetition_penalty must be between 0.000001 and 1000000 (1 = off); got inf",
        ),
        (("--max-length", "-1"), "max_length must be at least 0; got -1"),
        (
            ("--sample", "--temperature", "inf"),
            "temperature must be from 0.000001 to 1000000; got inf",
        ),
    ],
)
def test_numbers_out_of_range(capsys, options, refusal):
    assert regard(capsys, "predict", "spelling", "cat", *options, "--device", "cpu", code=2) == (
        "",
        f"regard: {refusal}\n",
    )


@pytest.mark.parametrize("device", ["cpu:x", "cuda:99"])
def test_missing_device(bundle, capsys, device):
    _, message = regard(capsys, "predict", bundle, "ab", "--device", device, code=2)
    assert len(message.splitlines()) == 1
    assert "use " in message
