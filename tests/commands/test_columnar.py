"""Parquet and Arrow: training, evaluating and predicting from them, and predicting to them."""

import json
import sys

import pandas
import polars
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from regard.loading import load
from tests.commands.small import arguments, pairs, regard, start

PAIRS = pairs(30, seed=3)
WORDS = [source for source, _ in PAIRS]


@pytest.fixture
def table(tmp_path):
    """A function that writes the pairs in the format of a name, by the library that reads it."""

    def write(name: str, **more):
        frame = pandas.DataFrame({"source": WORDS, "target": [t for _, t in PAIRS], **more})
        path = tmp_path / name
        if name.endswith(".parquet"):
            frame.to_parquet(path)
        elif name.endswith(".feather"):
            frame.to_feather(path)
        else:
            polars.from_pandas(frame).write_ipc(path)
        return path

    return write


@pytest.mark.parametrize("name", ["pairs.parquet", "pairs.feather", "pairs.arrow", "pairs.data"])
def test_evaluate_reads_columnar_files(name, table, bundle, tmp_path, capsys):
    data = table(name) if name != "pairs.data" else table("p.arrow").rename(tmp_path / name)
    out, _ = regard(capsys, "evaluate", bundle, data, "--json")
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    expected, _ = regard(capsys, "evaluate", bundle, tmp_path / "pairs.tsv", "--json")
    assert json.loads(out)["metrics"] == json.loads(expected)["metrics"]


def test_train_reads_arrow(table, tmp_path):
    process = start(arguments(table("pairs.arrow"), tmp_path / "run", "--steps", "2"))
    _, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    card = json.loads((tmp_path / "run/bundle/card.json").read_text())
    assert card["pairs"] + card["held_out"] == len(PAIRS)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("out.parquet", pandas.read_parquet),
        ("out.feather", pandas.read_feather),
        ("out.arrow", lambda path: polars.read_ipc(path).to_pandas()),
    ],
)
def test_predict_writes_what_other_libraries_read(name, read, table, bundle, tmp_path, capsys):
    words = ("--input", table("pairs.parquet"), "--column", "source", "--output", tmp_path / name)
    regard(capsys, "predict", bundle, *words)
    found, model = read(tmp_path / name), load(bundle)
    answers = [model(word) for word in WORDS]
    assert list(found.columns) == ["source", "output", "score"]
    assert list(found["source"]) == WORDS
    assert list(found["output"]) == [str(answer) for answer in answers]
    assert list(found["score"]) == pytest.approx([one.score for one in answers], abs=1e-6)


def test_every_wanted_column_is_written(bundle, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    regard(capsys, "predict", bundle, *WORDS[:2], "--output", out, "--n-best", 2, "--alignments",
           "--json")  # fmt: skip
    found, model = pyarrow.parquet.read_table(out), load(bundle)
    assert found.schema.names == [
        *("line", "source", "output", "score", "alignment", "tokens", "logps", "logp"),
        *("confidence", "unknown"),
    ]
    rows, expected = found.to_pylist(), [one for w in WORDS[:2] for one in model.best(w, n=2)]
    assert [row["line"] for row in rows] == [1, 1, 2, 2]
    for row, answer in zip(rows, expected, strict=True):
        assert (row["output"], row["tokens"]) == (answer.text, answer.tokens)
        assert row["logps"] == pytest.approx(answer.logps, abs=1e-6)
        assert row["logp"] == pytest.approx(sum(row["logps"]), abs=1e-5)
        assert row["confidence"] == pytest.approx(answer.confidence, abs=1e-6)
        assert len(row["alignment"].split()) == len(answer.tokens)


def test_evaluate_writes_parquet(table, bundle, tmp_path, capsys):
    for name in ("out.parquet", "out.tsv"):
        regard(capsys, "evaluate", bundle, table("pairs.parquet"), "--output", tmp_path / name)
    ours = pandas.read_parquet(tmp_path / "out.parquet")
    theirs = pandas.read_csv(tmp_path / "out.tsv", sep="\t", keep_default_na=False)
    assert ours.to_dict("list") == theirs.to_dict("list")


def test_large_output_has_several_row_groups(tmp_path):
    from regard.text import columnar

    lines = tmp_path / "lines.jsonl"
    count = columnar.GROUP_ROWS + 1
    rows = ({"source": f"{n}", "output": "x", "score": n / 2} for n in range(count))
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out.parquet"
    columnar.write_columnar(lines, out, ".parquet", ["source", "output", "score"])
    groups = pyarrow.parquet.ParquetFile(out)
    assert [groups.metadata.row_group(n).num_rows for n in range(2)] == [count - 1, 1]
    assert groups.read(columns=["score"])["score"].to_pylist() == [n / 2 for n in range(count)]


def test_missing_library_is_named(bundle, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    _, err = regard(capsys, "predict", bundle, "ab", "--output", tmp_path / "a.parquet", code=2)
    assert "a.parquet needs the extra 'parquet': pip install 'regard[parquet]'" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_damaged_arrow_is_one_line(bundle, tmp_path, capsys):
    (tmp_path / "a.arrow").write_bytes(b"ARROW1\0\0 nothing")
    _, err = regard(capsys, "predict", bundle, "--input", tmp_path / "a.arrow", code=2)
    assert "a.arrow cannot be read as an Arrow file (" in err
    assert err.count("\n") == 1
