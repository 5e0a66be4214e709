"""Spreadsheets: training on them, and `predict` from table to table, with the decisions shown."""

import csv
import io
import json

import openpyxl
import pytest

from regard.loading import load
from tests.commands.small import arguments, pairs, regard, start

WORDS = [source for source, _ in pairs(6, seed=3)]


@pytest.fixture(scope="module")
def answers(bundle):
    model = load(bundle)
    return [str(model(word)) for word in WORDS]


def workbook(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def trained(tmp_path, data, *more) -> str:
    process = start(arguments(data, tmp_path / "run", "--steps", "2", *more))
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return out + err


def test_headers_are_not_learned(tmp_path):
    data = tmp_path / "ord.csv"
    rows = [("Historisk form", "Modern form"), *pairs(60)]
    data.write_text("".join(f"{s};{t}\n" for s, t in rows))
    printed = trained(tmp_path, data)
    shown = f"{data}: CSV with ';' between fields, with a header (all its cells are known header"
    assert shown in " ".join(printed.split())
    ids = (tmp_path / "run/data/source.tokenizer.json").read_text()
    assert '"H"' not in ids


def test_five_columns_stop_and_list_the_columns(tmp_path, capsys):
    data = tmp_path / "ord.csv"
    head = "Nr;Historisk form;Modern form;År;Not\n"
    data.write_text(head + "".join(f"{n};{s};{t};1732;x\n" for n, (s, t) in enumerate(pairs(60))))
    _, err = regard(capsys, *arguments(data, tmp_path / "run"), code=2)
    (first, second), (third, fourth) = pairs(60)[0], pairs(60)[1]
    assert err == (
        f"regard: {data} has 5 columns: 1 'Nr' (0, 1), 2 'Historisk form' ({first}, {third}), "
        f"3 'Modern form' ({second}, {fourth}), 4 'År' (1732), 5 'Not' (x); which are source and "
        "target? Pass for example --source 2 --target 3\n"
    )
    regard(capsys, *arguments(data, tmp_path / "run", "--source", "2", "--target", "3", "--steps",
                              "2"))  # fmt: skip
    assert not (tmp_path / "run/data/bad-lines.txt").exists()


def test_windows_1252_keeps_every_word(tmp_path):
    data = tmp_path / "ord.csv"
    rows = [(source + "å", target + "ö") for source, target in pairs(60)]
    data.write_bytes("".join(f"{s};{t}\n" for s, t in rows).encode("cp1252"))
    printed = " ".join(trained(tmp_path, data).split())
    assert (
        "Windows-1252 (60 lines are not valid UTF-8, and its letters (å, ö) fit Swedish" in printed
    )
    card = json.loads((tmp_path / "run/bundle/card.json").read_text())
    assert card["pairs"] + card["held_out"] == 60
    assert "å" in (tmp_path / "run/data/source.tokenizer.json").read_text()


def test_excel_is_a_workbook(tmp_path):
    data = workbook(tmp_path / "ord.xlsx", [("Källa", "Mål"), *pairs(60)])
    printed = " ".join(trained(tmp_path, data).split())
    assert (
        f"{data}: sheet 'Sheet', with a header; source is column 1 and target column 2" in printed
    )


def test_parallel_files_with_a_parallel_held_out_set(tmp_path, capsys):
    rows = pairs(60)
    for name, some, side in (
        ("a.s", rows[:50], 0),
        ("a.t", rows[:50], 1),
        ("h.s", rows[50:], 0),
        ("h.t", rows[50:], 1),
    ):
        (tmp_path / name).write_text("".join(f"{row[side]}\n" for row in some))
    files = ("--targets", str(tmp_path / "a.t"), "--held-out", str(tmp_path / "h.s"))
    more = (*files, "--held-out-targets", str(tmp_path / "h.t"))
    trained(tmp_path, tmp_path / "a.s", *more)
    card = json.loads((tmp_path / "run/bundle/card.json").read_text())
    assert (card["pairs"], card["held_out"]) == (50, 10)
    wrong = ("--held-out-targets", tmp_path / "h.t")
    _, err = regard(capsys, *arguments(tmp_path / "a.s", tmp_path / "no"), *wrong, code=2)
    assert err == "regard: --held-out-targets needs --held-out, the files of held-out sources\n"


def test_predict_writes_source_and_output_side_by_side(bundle, answers, tmp_path, capsys):
    (tmp_path / "in.csv").write_text("nr;source\n" + "".join(f"1;{w}\n" for w in WORDS))
    out = tmp_path / "out.csv"
    regard(capsys, "predict", bundle, "--input", tmp_path / "in.csv", "--output", out)
    right = [["source", "output"], *map(list, zip(WORDS, answers, strict=True))]
    assert list(csv.reader(io.StringIO(out.read_text()), delimiter=";")) == right
    (tmp_path / "in.tsv").write_text("".join(f"{w}\n" for w in WORDS))
    out = tmp_path / "out.tsv"
    regard(capsys, "predict", bundle, "--input", tmp_path / "in.tsv", "--output", out)
    assert out.read_text() == "".join(f"{s}\t{t}\n" for s, t in right[1:])
    text = tmp_path / "out.txt"  # not a table
    regard(capsys, "predict", bundle, "--input", tmp_path / "in.tsv", "--output", text)
    assert text.read_text().splitlines() == answers


def test_predict_from_excel_to_excel(bundle, answers, tmp_path, capsys):
    table = workbook(tmp_path / "in.xlsx", [("Nr", "Ord"), *enumerate(WORDS)])
    out = tmp_path / "out.xlsx"
    words = ("predict", bundle, "--input", table, "--output", out)
    _, err = regard(capsys, *words, code=2)
    assert err == (
        f"regard: {table} has 2 columns: 1 'Nr' (0, 1), 2 'Ord' ({WORDS[0]}, {WORDS[1]}); which is "
        "the source? Pass for example --column 2\n"
    )
    regard(capsys, *words, "--column", "Ord", "--scores")
    rows = list(openpyxl.load_workbook(out).active.values)
    assert rows[0] == ("Ord", "score", "output")
    assert [(row[0], row[2]) for row in rows[1:]] == list(zip(WORDS, answers, strict=True))
    assert {path.name for path in tmp_path.iterdir()} == {"in.xlsx", "out.xlsx"}


def test_predict_keeps_excels_encoding_mark(bundle, answers, tmp_path, capsys):
    (tmp_path / "in.csv").write_text("source\nab\n", encoding="utf-8-sig")
    out = tmp_path / "out.csv"
    regard(capsys, "predict", bundle, "--input", tmp_path / "in.csv", "--output", out)
    assert out.read_bytes().startswith(b"\xef\xbb\xbfsource,output\n")


def test_predict_with_an_ensemble(bundle, tmp_path, capsys):
    both = load([bundle, bundle])
    out, _ = regard(capsys, "predict", bundle, "--ensemble", bundle, "--scores", *WORDS)
    right = [f"{both(word).score:.4f}\t{both(word)}" for word in WORDS]
    assert out.splitlines() == right
    _, err = regard(capsys, "predict", bundle, "--ensemble", "spelling", "ab", code=2)
    assert "an ensemble needs models with the same tokenizers" in err


def test_unwritable_table_format_is_refused(bundle, tmp_path, capsys):
    (tmp_path / "in.csv").write_text("source\nab\n")
    out = tmp_path / "out.ods"
    words = ("--input", tmp_path / "in.csv", "--output", out)
    _, err = regard(capsys, "predict", bundle, *words, code=2)
    assert err == f"regard: cannot write '{out}': use .xlsx, .csv, .tsv or .parquet\n"
