"""`regard train`: every format of data and every kind of setting."""

import csv
import gzip
import io
import json
import lzma
import subprocess
import sys
import types

import pytest

from regard import bundle
from regard.cli import main
from tests.commands.small import arguments, pairs, regard, start, written

PAIRS = pairs(60)


ONE = ("--steps", "1", "--set", "train.evaluations=1")


def train(*words) -> None:
    """The command, as it is typed; it must end well."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 0


def table(delimiter: str, rows) -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerows(rows)
    return file.getvalue()


def learned(out) -> tuple[int, int]:
    """The number of training pairs and of distinct held-out sources."""
    card = bundle.load(out / "bundle").card
    return card["pairs"], card["held_out"]


HEADER = ("id", "target", "source")


NUMBERED = [(i, target, source) for i, (source, target) in enumerate(PAIRS)]


FILES = {
    "pairs.tsv": ("".join(f"{s}\t{t}\n" for s, t in PAIRS).encode(), ()),
    "pairs.csv": (table(",", [HEADER, *NUMBERED]).encode(), ()),
    "named.csv": (
        table(";", [("n", "back", "word"), *NUMBERED]).encode(),
        ("--source", "word", "--target", "back"),
    ),
    "numbered.tsv": (table("\t", NUMBERED).encode(), ("--source", "3", "--target", "2")),
    "pairs.jsonl": (
        "\n".join(json.dumps({"source": s, "target": t}) for s, t in PAIRS).encode(),
        (),
    ),
    "keys.jsonl": (
        "\n".join(json.dumps({"a": s, "b": t}) for s, t in PAIRS).encode(),
        ("--source", "a", "--target", "b"),
    ),
    "pairs.tsv.gz": (gzip.compress("".join(f"{s}\t{t}\n" for s, t in PAIRS).encode()), ()),
    "pairs.tsv.xz": (lzma.compress("".join(f"{s}\t{t}\n" for s, t in PAIRS).encode()), ()),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The vocabularies and counts of the plain file, that every other shape must lead to."""
    home = tmp_path_factory.mktemp("plain")
    train(*arguments(written(home / "pairs.tsv", PAIRS), home / "run", *ONE))
    made = bundle.load(home / "run/bundle")
    assert learned(home / "run") == (60 - made.card["held_out"], made.card["held_out"])
    return made


@pytest.mark.parametrize("name", FILES)
def test_every_file_format_gives_the_same_pairs(tmp_path, plain, name):
    content, options = FILES[name]
    (tmp_path / name).write_bytes(content)
    train(*arguments(tmp_path / name, tmp_path / "run", *ONE, *options))
    made = bundle.load(tmp_path / "run/bundle")
    assert (made.card["pairs"], made.card["held_out"]) == (
        plain.card["pairs"],
        plain.card["held_out"],
    )
    assert made.card["tokens"] == plain.card["tokens"]
    assert made.source.encode("abcd") == plain.source.encode("abcd")
    assert made.card["metrics"] == plain.card["metrics"]


def test_parallel_files_and_held_out_file(tmp_path):
    sources, targets = tmp_path / "words", tmp_path / "backwards"
    sources.write_text("".join(f"{s}\n" for s, _ in PAIRS[:50]))
    targets.write_text("".join(f"{t}\n" for _, t in PAIRS[:50]))
    held = written(tmp_path / "held.tsv", PAIRS[50:])
    train(
        *arguments(
            sources, tmp_path / "run", *ONE, "--targets", str(targets), "--held-out", str(held)
        )
    )
    assert learned(tmp_path / "run") == (50, 10)


def test_several_files_are_one_corpus(tmp_path):
    one, two = written(tmp_path / "one.tsv", PAIRS[:25]), written(tmp_path / "two.tsv", PAIRS[25:])
    train(*[*arguments(one, tmp_path / "run", *ONE), str(two)])
    assert sum(learned(tmp_path / "run")) == 60


def test_standard_input_is_read(tmp_path, monkeypatch):
    stream = io.BytesIO("".join(f"{s}\t{t}\n" for s, t in PAIRS).encode())
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=stream))
    train(*arguments("-", tmp_path / "run", *ONE))
    assert sum(learned(tmp_path / "run")) == 60


def test_run_folder_is_named_after_the_first_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "my-words.tsv", PAIRS)
    words = arguments("my-words.tsv", tmp_path / "run", *ONE)
    train(*[word for word in words if word not in ("--out", str(tmp_path / "run"))])
    assert (tmp_path / "runs/my-words/bundle/weights.safetensors").is_file()


def test_set_takes_precedence_over_the_settings_file(tmp_path):
    data = written(tmp_path / "pairs.tsv", PAIRS)
    (tmp_path / "my.toml").write_text(
        '[model]\nkind = "recurrent"\nwidth = 12\nattention = "luong"\nscore = "dot"\n'
        "[train]\nsteps = 2\nevaluations = 1\n"
        '[text]\nsource_tokenizer = "bytes"\n'
    )
    settings = (
        "--config",
        tmp_path / "my.toml",
        "--set",
        "model.width=8",
        "--set",
        "model.cell=lstm",
    )
    train("train", data, "--out", tmp_path / "run", *settings)
    made = bundle.load(tmp_path / "run/bundle")
    assert made.settings.model_dump() | {"dropout": 0} == {
        "kind": "recurrent",
        "cell": "lstm",
        "attention": "luong",
        "score": "dot",
        "normaliser": "softmax",
        "width": 8,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0,
        "tie_embeddings": "target",
    }
    assert made.source.kind == "bytes"
    assert made.target.kind == "characters"
    assert made.card["of"] == 2


def test_skipped_lines_are_counted_and_saved(tmp_path, capsys):
    lines = [f"{s}\t{t}".encode() for s, t in PAIRS]
    data = tmp_path / "pairs.tsv"
    data.write_bytes(
        b"\n".join([*lines[:3], b"lonely", b"caf\xff\tef", b"\tempty", *lines[3:]]) + b"\n"
    )
    train(*arguments(data, tmp_path / "run", *ONE, "--bad-lines", "skip"))
    err = capsys.readouterr().err
    assert (
        f"skipped 3 bad lines: 1 missing column (first at {data}:4), "
        f"1 broken UTF-8 (first at {data}:5), 1 empty side (first at {data}:6)\n"
    ) in err
    assert sum(learned(tmp_path / "run")) == 60
    aside = (tmp_path / "run/data/bad-lines.txt").read_bytes().splitlines()
    assert [line.rsplit(b"\t", 1)[-1] for line in aside[:2]] == [b"lonely", b"ef"]
    assert [line.split(b"\t")[0].decode() for line in aside] == [
        f"{data}:{number}" for number in (4, 5, 6)
    ]


def test_program_reads_a_pipe(tmp_path):
    text = "".join(f"{s}\t{t}\n" for s, t in PAIRS)
    process = start(arguments("-", tmp_path / "run", *ONE), stdin=subprocess.PIPE)
    out, err = process.communicate(text, timeout=900)
    assert process.returncode == 0, err
    assert out == ""
    assert err.splitlines()[-2:] == [
        f"bundle: {tmp_path / 'run/bundle'}",
        f"report: {tmp_path / 'run/report.html'}",
    ]
    assert "\x1b" not in err


def test_all_files_after_held_out_are_held_out(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv")
    one, two = (written(tmp_path / f"{n}.tsv", pairs(20, seed=n)) for n in (5, 6))
    words = arguments(data, tmp_path / "run", "--steps", "2", "--held-out", str(one), str(two))
    _, err = regard(capsys, *words)
    assert "pairs: 100 for training, " in err


def test_option_takes_precedence_over_the_file(tmp_path, capsys):
    data, file = written(tmp_path / "pairs.tsv"), tmp_path / "settings.toml"
    file.write_text('[model]\nkind = "transformer"\n')
    words = [
        "train",
        data,
        "--out",
        tmp_path / "run",
        "--steps",
        "1",
        "--size",
        "tiny",
        "--config",
        file,
    ]
    _, err = regard(
        capsys,
        *words,
        "--family",
        "recurrent",
        "--set",
        "model.cell=lstm",
        "--set",
        "text.max_tokens=8",
    )
    assert "recurrent" in err
    file.write_text("model = 3\n")
    _, err = regard(capsys, *words, code=2)
    assert err == f"regard: 'model' in {file} must be a group of settings, as [model]; got 3\n"
