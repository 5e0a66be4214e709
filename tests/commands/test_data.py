"""`regard data` and `regard clean`: findings, filtered files and reports."""

import json

import openpyxl
import pytest

from tests.commands.small import arguments, pairs, regard, start, written

GOOD = pairs(60)
BAD = [GOOD[0], (GOOD[1][0], "xx"), ("aÃ¤b", "ab"), ("дом", "dom"), ("zz", "d " * 40)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "ord.csv"
    rows = [("Historisk form", "Modern form"), *GOOD, *BAD]
    path.write_text("".join(f"{s};{t}\n" for s, t in rows) + "alone;\na;b\n")
    return path


def test_data_reports_what_would_be_trained_on(table, tmp_path, capsys):
    held_out = written(tmp_path / "held.tsv", [GOOD[3], ("yy", "yy")])
    out, printed = regard(capsys, "data", table, "--held-out", held_out)
    assert printed == ""
    for line in (
        "with a header (all its cells are known header words; --no-header if this is wrong)",
        "66 pairs",
        f"skipped 1 bad line: 1 empty side (first at {table}:67)",
        f"  {GOOD[0][0]!r} → {GOOD[0][1]!r}",
        "1 exact duplicates of an earlier pair (1.5 %)",
        "1 sources with several targets (1.5 %)",
        "1 pairs with broken characters (a wrong encoding?) (1.5 %)\n  'aÃ¤b' → 'ab'",
        "1 pairs of unusual length ratio (1.5 %)",
        "1 pairs in another script than the rest (1.5 %)\n  'дом' → 'dom'",
        "1 held-out sources that also occur in the training data",
        "50.0 % of the held-out source words occur in the training data",
    ):
        assert line in out, line


def test_data_as_json(table, capsys):
    found = json.loads(regard(capsys, "data", table, "--json")[0])
    assert found["pairs"] == 66
    assert found["bad_lines"] == {"empty side": 1}
    assert found["counts"]["duplicate"] == 1
    assert found["sides"]["target"]["scripts"] == {"Latin": 1.0}
    assert found["first_pairs"][0] == list(GOOD[0])


def test_train_warns_with_the_same_checks(tmp_path):
    data = written(tmp_path / "pairs.tsv", [*GOOD, *GOOD[:20]])
    process = start(arguments(data, tmp_path / "run", "--steps", "2"))
    out, printed = process.communicate(timeout=900)
    assert process.returncode == 0, printed
    what = "20 exact duplicates of an earlier pair (25.0 %), for example"
    assert what in " ".join((out + printed).split())


def test_clean_writes_a_filtered_file_and_a_report(table, tmp_path, capsys):
    target = tmp_path / "clean.tsv"
    out, _ = regard(capsys, "clean", table, target)
    rows = [line.split("\t") for line in target.read_text().splitlines()]
    kept = [*GOOD, (GOOD[1][0], "xx"), ("дом", "dom"), ("a", "b")]
    assert rows == [["source", "target"], *map(list, kept)]
    assert out.startswith(f"{target}: kept 63 of 67 pairs\n")
    counts = {line.rsplit(None, 1)[0].strip(): line.split()[-1] for line in out.splitlines()[3:-1]}
    assert counts == {
        "empty side": "1",
        "duplicate": "1",
        "broken characters": "1",
        "length ratio": "1",
    }
    dropped = (tmp_path / "clean.tsv.dropped.tsv").read_text().splitlines()
    assert dropped[:3] == [
        "reason\tsource\ttarget",
        f"duplicate\t{GOOD[0][0]}\t{GOOD[0][1]}",
        "broken characters\taÃ¤b\tab",
    ]
    assert len(dropped) == 4


@pytest.mark.parametrize(
    ("options", "gone", "stays"),
    [
        (["--drop-scripts"], ("дом", "dom"), GOOD[1]),
        (["--drop-conflicts"], (GOOD[1][0], "xx"), GOOD[1]),
        (["--keep-broken"], GOOD[0], ("aÃ¤b", "ab")),
        (["--max-ratio", "0"], ("aÃ¤b", "ab"), ("zz", ("d " * 40).strip())),
        (["--max-length", "4"], max(GOOD, key=lambda pair: len(pair[0])), ("дом", "dom")),
    ],
)
def test_rules_of_clean(table, tmp_path, capsys, options, gone, stays):
    target = tmp_path / "clean.jsonl"
    regard(capsys, "clean", table, target, *options)
    rows = [tuple(json.loads(line).values()) for line in target.read_text().splitlines()]
    assert rows.count(gone) == (options == ["--keep-broken"])  # a duplicate is gone
    assert stays in rows


def test_clean_excludes_held_out_sources(table, tmp_path, capsys):
    held_out = written(tmp_path / "held.tsv", GOOD[:10])
    target = tmp_path / "clean.xlsx"
    regard(capsys, "clean", table, target, "--exclude", held_out)
    rows = list(openpyxl.load_workbook(target).active.values)
    assert rows[0] == ("source", "target")
    assert not {row[0] for row in rows} & {source for source, _ in GOOD[:10]}


def test_clean_errors_name_the_fix(table, tmp_path, capsys):
    _, printed = regard(capsys, "clean", table, tmp_path / "x.doc", code=2)
    names = ".tsv, .txt, .csv, .jsonl, .xlsx"
    assert printed == f"regard: cannot write '{tmp_path / 'x.doc'}': name it {names}\n"
    _, printed = regard(capsys, "clean", table, table, code=2)
    assert "is also an input and would be overwritten; name another file" in printed
    dropped = table.rename(tmp_path / "x.tsv.dropped.tsv")
    _, printed = regard(capsys, "clean", dropped, tmp_path / "x.tsv", code=2)
    assert f"would overwrite the input {str(dropped)!r}; name another file" in printed
    table = dropped.rename(table)
    target = tmp_path / "none.tsv"
    _, printed = regard(
        capsys, "clean", table, target, "--max-length", "1", "--exclude", table, code=2
    )
    assert printed.startswith("regard: the rules drop all pairs; loosen one")
    assert not target.exists()


def test_guesses_are_shown_by_evaluate_and_score(bundle, tmp_path, capsys):
    data = tmp_path / "test.csv"
    data.write_text("Old form;New form\n" + "".join(f"{s};{t}\n" for s, t in GOOD[:5]))
    note = f"{data}: CSV with ';' between fields, with a header (all its cells are known"
    out, printed = regard(capsys, "evaluate", bundle, data)
    assert printed.startswith(note)
    assert out.startswith("5 sources")
    assert regard(capsys, "score", bundle, data)[1].startswith(note)
