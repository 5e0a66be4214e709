"""Errors of `regard train`: one line on stderr with a fix, exit code 2, nothing half-written."""

import pytest

from regard.cli import main
from tests.commands.small import arguments, pairs, regard, start, written

GOOD = "".join(f"{source}\t{target}\n" for source, target in pairs(40)).encode()


def refused(capsys, *words) -> str:
    """What the command says instead of doing its work."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, message = capsys.readouterr()
    assert ended.value.code == 2, message
    assert out == ""
    *before, last = message.splitlines()
    assert not [line for line in before if not line.startswith("tokenized ")], (
        message
    )  # what it did until then
    assert last.startswith("regard: ")
    return last.removeprefix("regard: ")


def nothing_in(folder) -> bool:
    return not [path for path in folder.rglob("*") if path.is_file()]


MEND = "; fix the line, or skip it with --bad-lines skip"


BAD_DATA = {
    "missing column": (
        GOOD + b"lonely\n",
        "{}:41: 1 column only, but the target is column 2" + MEND,
    ),
    "extra column": (
        GOOD + b"a\tb\tc\n",
        "{}:41: 3 columns where the file has 2; is a delimiter inside the text?" + MEND,
    ),
    "broken UTF-8": (
        GOOD + b"caf\xff au lait\tx\n",
        "{}:41: byte 4 of the line, 0xFF, is not valid UTF-8; fix the line, name the --encoding, "
        "or skip it with --bad-lines skip",
    ),
    "empty target": (GOOD + b"a\t \nb\tb\n", "{}:41: the target is empty" + MEND),
    "empty source": (GOOD + b"\tb\n", "{}:41: the source is empty" + MEND),
    "three columns": (
        b"1\ta\tb\n2\tc\td\n",
        "{} has 3 columns: 1 (1, 2), 2 (a, c), 3 (b, d); which are source and target? Pass for "
        "example --source 2 --target 3",
    ),
    "one pair": (
        b"a\tb\n",
        "cannot hold out pairs of one source; give a held-out file, or more pairs",
    ),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_is_named_by_file_and_line(tmp_path, capsys, name):
    content, message = BAD_DATA[name]
    data = tmp_path / "pairs.tsv"
    data.write_bytes(content)
    assert refused(capsys, *arguments(data, tmp_path / "run", "--steps", "1")) == message.format(
        data
    )
    assert nothing_in(tmp_path / "run")


def test_missing_and_mismatched_files(tmp_path, capsys):
    data, run = written(tmp_path / "pairs.tsv"), tmp_path / "run"
    (tmp_path / "short.txt").write_text("a\n")
    (tmp_path / "long.txt").write_text("b\nc\nd\n")
    for words, message in (
        ([tmp_path / "no.tsv"], f"cannot read '{tmp_path / 'no.tsv'}': No such file or directory"),
        ([tmp_path], f"'{tmp_path}' is a folder; name the files in it"),
        (
            [tmp_path / "long.txt", "--targets", tmp_path / "short.txt"],
            f"{tmp_path / 'long.txt'} has 2 lines more than {tmp_path / 'short.txt'}, from line 2; "
            "parallel files must match line by line",
        ),
        (
            [data, data, "--targets", data],
            "2 source files but 1 target files; each needs a counterpart",
        ),
        (
            [data, "--source", "word", "--target", "2"],
            f"{data}: the first line has no column 'word'; choose from "
            f"{', '.join(map(repr, sorted(pairs()[0])))}",
        ),
        (
            [data, "--source", "1", "--target", "5"],
            f"{data}, read as tab-separated, has 2 columns; there is no column 5 (counted from 1)",
        ),
        (
            [data, "--source", "1"],
            "the source column is 1 but the target column is not set; set both or neither",
        ),
        (
            [data, "--bad-lines", "ignore"],
            "unknown bad-line policy 'ignore'; choose from 'skip', 'stop'",
        ),
        (
            [data, "--config", tmp_path / "no.toml"],
            f"cannot read settings '{tmp_path / 'no.toml'}': No such file or directory",
        ),
        (
            [data, "--held-out", tmp_path / "none"],
            f"cannot read '{tmp_path / 'none'}': No such file or directory",
        ),
    ):
        assert refused(capsys, "train", *words, "--out", run, "--steps", "1") == message
        assert nothing_in(run)


SETTINGS = {
    "unknown setting of training": (
        ["--set", "train.learning_ratte=1"],
        "unknown setting train.learning_ratte; did you mean 'learning_rate'?",
    ),
    "unknown setting of the model": (
        ["--set", "model.widht=8"],
        "unknown setting model.widht; did you mean 'width'?",
    ),
    "setting of another family": (
        ["--family", "recurrent", "--set", "model.heads=2"],
        "unknown setting model.heads; choose from 'attention', 'cell', 'decoder_layers', "
        "'dropout', 'encoder_layers', 'kind', 'normaliser', 'score', 'tie_embeddings', 'width'",
    ),
    "unknown group": (
        ["--set", "modle.width=8"],
        "unknown setting 'modle' in --set; did you mean 'model'?",
    ),
    "no value": (
        ["--set", "model.width"],
        "--set expects GROUP.NAME=VALUE, such as model.width=128; got 'model.width'",
    ),
    "wrong value": (
        ["--set", "train.precision=fp8"],
        "train.precision: input should be 'auto', 'float32' or 'bfloat16'; got 'fp8'",
    ),
    "value out of bounds": (
        ["--set", "model.dropout=1.5"],
        "model.dropout: input should be less than 1; got 1.5",
    ),
    "no number": (
        ["--set", "model.width=wide"],
        "model.width: input should be a valid integer, unable to parse string as an integer; got "
        "'wide'",
    ),
    "two budgets": (
        ["--minutes", "1", "--steps", "2"],
        "give only one of minutes, steps and epochs; got minutes and steps",
    ),
    "budget twice": (
        ["--epochs", "1", "--set", "train.steps=2"],
        "give only one of minutes, steps and epochs; got steps and epochs",
    ),
    "unknown family": (
        ["--family", "transfomer"],
        "unknown family 'transfomer'; did you mean 'transformer'?",
    ),
    "unknown size": (
        ["--size", "huge"],
        "unknown size 'huge'; choose from 'auto', 'base', 'big', 'mini', 'small', 'student', "
        "'tiny'",
    ),
    "unknown tokenizer": (
        ["--set", "text.source_tokenizer=word"],
        "unknown tokenizer 'word'; did you mean 'words'?",
    ),
    "unknown position": (
        ["--set", "model.position=rotery"],
        "model.position: unknown position 'rotery'; did you mean 'rotary'? A part of your own "
        "must "
        "be registered before use: pass its file with --import FILE, or import it in Python",
    ),
    "heads that do not fit": (
        ["--set", "model.width=10", "--set", "model.heads=4"],
        "model.width = 10 cannot be split into model.heads = 4; set model.dim, the size of a head",
    ),
    "no GPU here": (
        ["--device", "cuda"],
        "device 'cuda' is not available: torch finds no GPU; use --device cpu",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_wrong_setting_is_reported_before_training(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words, message = SETTINGS[name]
    data = written(tmp_path / "pairs.tsv")
    assert refused(capsys, "train", data, "--out", tmp_path / "run", *words) == message
    assert not (tmp_path / "run").exists()


def test_wrong_settings_file_is_named(tmp_path, capsys):
    data, toml = written(tmp_path / "pairs.tsv"), tmp_path / "my.toml"
    for content, message in (
        (
            "[train\n",
            f"'{toml}' is not valid TOML: Expected ']' at the end of a table declaration (at "
            "line 1, column 7)",
        ),
        ("[trian]\nsteps = 1\n", f"unknown setting 'trian' in {toml}; did you mean 'train'?"),
        ("steps = 1\n", f"unknown setting 'steps' in {toml}; choose from 'model', 'text', 'train'"),
    ):
        toml.write_text(content)
        assert (
            refused(capsys, "train", data, "--out", tmp_path / "run", "--config", toml) == message
        )


def test_typing_errors_are_one_line(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv")
    assert "--stpes" in refused(capsys, "train", data, "--stpes", "3")
    assert "--steps" in refused(capsys, "train", data, "--steps", "three")
    assert refused(capsys, "train").startswith("no files of pairs given; put them first")
    assert "trian" in refused(capsys, "trian", data)


def test_folder_that_cannot_be_created_is_named(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv")
    message = refused(capsys, *arguments(data, data / "run", "--steps", "1"))
    assert str(data / "run") in message
    assert "Not a directory" in message


def test_error_can_be_fixed_in_the_same_folder(tmp_path, capsys):
    data, run = tmp_path / "pairs.tsv", tmp_path / "run"
    data.write_bytes(GOOD + b"lonely\n")
    refused(capsys, *arguments(data, run, "--steps", "1"))
    data.write_bytes(GOOD)
    uneven = ("--set", "model.tie_embeddings=all", "--set", "text.target_tokenizer=bytes")
    assert "needs one vocabulary" in refused(capsys, *arguments(data, run, "--steps", "1", *uneven))
    good = ("--set", "text.target_tokenizer=bytes", "--set", "train.evaluations=1")
    with pytest.raises(SystemExit) as ended:
        main(arguments(data, run, "--steps", "1", *good))
    assert ended.value.code == 0, capsys.readouterr().err
    capsys.readouterr()
    message = refused(capsys, *arguments(data, run, "--steps", "2", *good))
    began = "this run began with other settings: train.steps was 1 and is 2"
    assert message == (
        f"{began}. Use the old ones, --extend to continue with a new length, --restart to start "
        "over, or another --out"
    )


def test_error_of_the_program_is_one_line_and_code_2(tmp_path):
    process = start(["train", str(tmp_path / "no.tsv")])
    out, message = process.communicate(timeout=900)
    assert (process.returncode, out) == (2, "")
    assert message == f"regard: cannot read '{tmp_path / 'no.tsv'}': No such file or directory\n"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "train.bpe_dropout=0.5",
            "train.bpe_dropout = 0.5 needs a bpe tokenizer on at least one side",
        ),
        (
            "text.vocabulary_size=40",
            "text.vocabulary_size = 40 applies to bpe and unigram tokenizers, ",
        ),
    ],
)
def test_refused_setting_can_be_taken_back(tmp_path, capsys, setting, message):
    words = arguments(written(tmp_path / "pairs.tsv"), tmp_path / "run", "--steps", "2")
    _, err = regard(capsys, *words, "--set", setting, code=2)
    assert f"\nregard: {message}" in f"\n{err}"
    regard(capsys, *words)


def test_dropped_setting_of_a_run_is_reported(tmp_path, capsys):
    words = arguments(written(tmp_path / "pairs.tsv"), tmp_path / "run", "--steps", "2")
    regard(capsys, *words, "--set", "train.learning_rate=0.002")
    _, message = regard(capsys, *words, code=2)
    assert message == (
        "regard: this run began with other settings: "
        "train.learning_rate was 0.002 and is not given. Use the old ones, --restart to start "
        "over, or another --out\n"
    )
    regard(capsys, *words, "--set", "train.learning_rate=0.002")


def test_files_taken_by_an_option_are_reported(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv")
    _, message = regard(capsys, "train", "--held-out", data, data, code=2)
    assert "put them first, because --targets and --held-out take all names that follow" in message
