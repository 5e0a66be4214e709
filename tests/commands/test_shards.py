"""Shards of `regard predict`: contiguous parts of any input that join to the output of one run."""

import bz2
import gzip
import io
import json
import lzma

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
import zstandard

from regard.commands import output_files as outputs
from regard.commands.inputs import open_inputs
from regard.commands.shards import Shard
from regard.errors import RegardError
from tests.commands.small import pairs, regard

WORDS = [source for source, _ in pairs(40, seed=3)]
COUNTS = (1, 2, 3, 7, 100)  # the last: more shards than lines


def texts(path, shard: Shard | None = None, **how) -> list[str]:
    return [line.text for window in open_inputs((), [str(path)], shard=shard, **how).windows()
            for line in window]  # fmt: skip


def split(path, count: int, **how) -> list[list[str]]:
    return [texts(path, Shard(number, count), **how) for number in range(1, count + 1)]


def parquet(rows, **options) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(rows), out, **options)
    return out.getvalue()


def arrow(rows, stream: bool) -> bytes:
    out, table = io.BytesIO(), pyarrow.table(rows)
    make = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with make(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)
    return out.getvalue()


LINES = "".join(f"{word}\n" for word in WORDS).encode()
UNEVEN = b"\n\n" + b"a" * 900 + b"\r\nb\n\n\nc\n\xef\xbb\xbfd\n\n  \ne"
TABLE = "source\tn\n" + "".join(f"{word}\t{n}\n" for n, word in enumerate(WORDS))
JSON = "".join(json.dumps({"source": word, "target": "x"}) + "\n" for word in WORDS)
INPUTS = {
    "lines": ("a.txt", LINES, WORDS),
    "no final newline": ("a.txt", LINES[:-1], WORDS),
    "empty": ("a.txt", b"", []),
    "one newline": ("a.txt", b"\n", [""]),
    "one byte": ("a.txt", b"x", ["x"]),
    "byte-order mark": ("a.txt", b"\xef\xbb\xbf" + LINES, WORDS),
    "only a byte-order mark": ("a.txt", b"\xef\xbb\xbf", [""]),
    "uneven": ("a.txt", UNEVEN, ["", "", "a" * 900, "b", "", "", "c", "\ufeffd", "", "", "e"]),
    "gzip": ("a.gz", gzip.compress(LINES), WORDS),
    "xz": ("a.xz", lzma.compress(LINES[:-1]), WORDS),
    "zstandard": ("a.zst", zstandard.compress(LINES), WORDS),
    "bzip2": ("a.bz2", bz2.compress(LINES), WORDS),
    "UTF-16": ("a.txt", LINES.decode().encode("utf-16"), WORDS),
    "carriage returns": ("a.txt", LINES.replace(b"\n", b"\r"), WORDS),
    "TSV": ("a.tsv", TABLE.encode(), WORDS),
    "TSV, header below blanks": ("a.tsv", b"\n\n\n" + TABLE.encode() + b"\n\n", WORDS),
    "TSV, blank lines inside": (
        "a.tsv",
        b"source\tn\n\n\na\t1\n\n\n\n\nb\t2\n\n\n\n\n\n\n",
        ["", "", "a", "", "", "", "", "b"],
    ),
    "CSV with line ends": ("a.csv", b'source,n\n"a\nb",1\nc,2\n"d\n\n",3\n', ["a\nb", "c", "d"]),
    "JSON lines": ("a.jsonl", JSON.encode(), WORDS),
    "Parquet": ("a.parquet", parquet({"source": WORDS}, row_group_size=7), WORDS),
    "Parquet with blanks": (
        "a.parquet",
        parquet({"source": ["a", None, None, "b", None, None]}, row_group_size=2),
        ["a", "", "", "b"],
    ),
    "Arrow": ("a.arrow", arrow({"source": WORDS}, stream=False), WORDS),
    "Arrow stream": ("a.arrow", arrow({"source": WORDS}, stream=True), WORDS),
    "Feather": ("a.feather", arrow({"source": WORDS}, stream=False), WORDS),
}


@pytest.mark.parametrize("name", INPUTS)
def test_shards_hold_every_line_once_and_in_order(name, tmp_path):
    file, data, expected = INPUTS[name]
    path = tmp_path / file
    path.write_bytes(data)
    how = {"column": "source"} if file == "a.jsonl" else {}
    assert texts(path, **how) == expected
    for count in COUNTS:
        parts = split(path, count, **how)
        assert [text for part in parts for text in part] == expected, count


@pytest.mark.parametrize("name", ["lines", "gzip", "Parquet", "JSON lines", "TSV"])
def test_shards_are_balanced(name, tmp_path):
    file, data, expected = INPUTS[name]
    path = tmp_path / file
    path.write_bytes(data)
    how = {"column": "source"} if file == "a.jsonl" else {}
    sizes = [len(part) for part in split(path, 4, **how)]
    assert min(sizes) >= len(expected) / 4 - 4


def test_files_are_split_as_one_input(tmp_path):
    for name, data in (("a", b"1\n2\n3"), ("b", b""), ("c", b"4\n\n"), ("d", b"5\n6\n7\n8\n9\n")):
        (tmp_path / name).write_bytes(data)
    files = [str(tmp_path / name) for name in "abcd"]
    for count in COUNTS:
        shards = [open_inputs((), files, shard=Shard(n + 1, count)) for n in range(count)]
        found = [line.text for one in shards for window in one.windows() for line in window]
        assert found == ["1", "2", "3", "4", "", "5", "6", "7", "8", "9"]
        assert sum(one.count() for one in shards) == 10
        before = [one.count_before() for one in shards]
        assert before == sorted(before)
        assert [one.begins for one in shards] == [number == 0 for number in before]


def test_texts_are_split(tmp_path):
    shards = [open_inputs(["a", "b", "c"], shard=Shard(n, 2)) for n in (1, 2)]
    assert [[line.text for line in one.lines()] for one in shards] == [["a"], ["b", "c"]]


def test_shard_reads_little_more_than_its_lines(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 99 * 1_000 + b"\n" + (b"y" * 99 + b"\n") * 10_000)
    from regard.text import file_ranges

    inputs = open_inputs((), [str(path)], shard=Shard(9, 10))
    assert inputs._split.size == path.stat().st_size
    read = []
    original = file_ranges._RangeReader.readinto

    def counted(self, buffer):
        read.append(original(self, buffer))
        return read[-1]

    monkeypatch.setattr(file_ranges._RangeReader, "readinto", counted)
    assert len(list(inputs.lines())) == pytest.approx(1_099, abs=2)
    assert sum(read) < 0.11 * path.stat().st_size


def test_messages_name_the_line_of_the_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n" * 75 + b"bad \xff\n" + b"good\n" * 24)
    with pytest.raises(RegardError, match=r"a\.txt:76: byte 5 of the line, 0xFF, is not valid"):
        split(path, 4)
    places = [line.place for line in open_inputs((), [str(path)], shard=Shard(3, 5)).lines()]
    assert [str(place).rsplit(":", 1)[1] for place in places[:2]] == ["41", "42"]


@pytest.mark.parametrize("text", ["0/4", "5/4", "3", "a/b", "1/0", "-1/4", "1/100000", "1/2/3", ""])
def test_bad_shard_is_refused(text):
    with pytest.raises(RegardError, match=r"--shard expects NUMBER/COUNT .* got "):
        Shard.parse(text)


def test_shard_names(tmp_path):
    assert Shard.parse("3/64").path(tmp_path / "out.tsv").name == "out.tsv.shard-003-of-064"
    assert Shard(3, 6400).path(tmp_path / "out").name == "out.shard-0003-of-6400"


# Predict and join.


def predict_all(capsys, bundle, out, count, *more):
    for number in range(1, count + 1):
        regard(capsys, "predict", bundle, "--output", out, "--shard", f"{number}/{count}", *more)


@pytest.mark.parametrize(
    ("file", "out", "more"),
    [
        ("lines", "out.txt", ()),
        ("no final newline", "out.txt", ("--n-best", "2")),
        ("gzip", "out.jsonl", ("--json", "--alignments")),
        ("uneven", "out.txt", ("--scores", "--sample", "--long", "allow")),
        ("TSV", "out.tsv", ("--column", "source", "--scores")),
        ("CSV with line ends", "out.csv", ("--column", "source")),
        ("Parquet", "out.parquet", ("--n-best", "2", "--json")),
        ("lines", "out.xlsx", ()),
        ("lines", "out.arrow", ("--alignments",)),
        ("empty", "out.txt", ()),
        ("empty", "out.parquet", ("--n-best", "2")),
    ],
)
def test_joined_shards_equal_one_run(file, out, more, bundle, tmp_path, capsys):
    name, data, _ = INPUTS[file]
    (tmp_path / name).write_bytes(data)
    words = ("--input", tmp_path / name, *more)
    regard(capsys, "predict", bundle, "--output", tmp_path / f"one-{out}", *words)
    predict_all(capsys, bundle, tmp_path / out, 3, *words)
    _, err = regard(capsys, "join", tmp_path / out)
    assert "lines of 3 shards" in err
    ours, single = (tmp_path / out).read_bytes(), (tmp_path / f"one-{out}").read_bytes()
    if out.endswith(".xlsx"):  # a workbook holds the time of its creation
        ours, single = (
            [[cell.value for cell in row] for row in load_sheet(tmp_path / path)]
            for path in (out, f"one-{out}")
        )
    assert ours == single


def load_sheet(path):
    import openpyxl

    return list(openpyxl.load_workbook(path).active)


def test_more_shards_than_lines_and_several_files(bundle, tmp_path, capsys):
    (tmp_path / "a.tsv").write_text("source\tn\nab\t1\n\ncd\t2\n")
    (tmp_path / "b.tsv").write_text("source\tn\nbc\t1\n")
    words = ("--input", tmp_path / "a.tsv", tmp_path / "b.tsv", "--column", "source")
    regard(capsys, "predict", bundle, "--output", tmp_path / "one.tsv", *words)
    assert len((tmp_path / "one.tsv").read_text().splitlines()) == 5
    predict_all(capsys, bundle, tmp_path / "out.tsv", 20, *words)
    regard(capsys, "join", tmp_path / "out.tsv", "--remove")
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "one.tsv").read_bytes()
    assert not list(tmp_path.glob("*.shard-*"))


def test_interrupted_shard_resumes_and_complete_one_stays(
    bundle, words, tmp_path, capsys, monkeypatch
):
    out, command = tmp_path / "out", ("--input", words, "--n-best", "2")
    regard(capsys, "predict", bundle, "--output", tmp_path / "one", *command)
    shard = (bundle, "--output", out, *command, "--shard", "2/2")
    monkeypatch.setattr(outputs, "SAVE_SECONDS", 0.0)
    original, calls = outputs.ResumableFile.write, []

    def stop(self, window, text, rejected):
        original(self, window, text)
        calls.append(len(window))
        raise KeyboardInterrupt

    monkeypatch.setattr(outputs.ResumableFile, "write", stop)
    regard(capsys, "predict", *shard, code=130)
    monkeypatch.setattr(outputs.ResumableFile, "write", original)
    regard(capsys, "predict", bundle, "--output", out, *command, "--shard", "1/2")
    message = f"regard: shard 2/2 is incomplete ({calls[0]} lines so far); run its command again, "
    assert regard(capsys, "join", out, code=2)[1] == message + "with --shard 2/2\n"
    assert not out.exists()
    _, err = regard(capsys, "predict", *shard)
    assert f"resuming after {calls[0]} lines" in err
    _, err = regard(capsys, "predict", *shard)
    assert err == f"{out}.shard-002-of-002: complete already\n"
    regard(capsys, "join", out)
    assert out.read_bytes() == (tmp_path / "one").read_bytes()


@pytest.fixture
def complete(bundle, words, tmp_path, capsys):
    predict_all(capsys, bundle, tmp_path / "out", 3, "--input", words)
    return tmp_path / "out"


def refusal(capsys, *arguments) -> str:
    return regard(capsys, "join", *arguments, code=2)[1].removeprefix("regard: ").removesuffix("\n")


def test_join_refuses_missing_and_changed_shards(complete, bundle, words, capsys):
    second = Shard(2, 3).path(complete)
    content, record = second.read_bytes(), second.with_name(f"{second.name}.progress").read_bytes()
    second.write_bytes(content.replace(b"a", b"b", 1))
    assert "shard 2/3 was changed after it was written" in refusal(capsys, complete)
    second.write_bytes(content)
    second.with_name(f"{second.name}.progress").unlink()
    assert "shard 2/3 has no record 'out.shard-002-of-003.progress'" in refusal(capsys, complete)
    second.unlink()
    missing = f"shard 2/3 of '{complete}' is missing; run its command, with --shard 2/3"
    assert refusal(capsys, complete) == missing
    second.with_name(f"{second.name}.progress").write_bytes(record)
    assert "shard 2/3 is incomplete" in refusal(capsys, complete)
    assert "no shards of" in refusal(capsys, complete.with_name("other"))
    assert not complete.exists()
    regard(capsys, "predict", bundle, "--output", complete, "--input", words, "--shard", "2/3")
    assert second.read_bytes() == content


def test_join_refuses_other_options_and_inputs(complete, bundle, words, capsys):
    again = (bundle, "--output", complete, "--shard", "3/3", "--restart", "--input")
    regard(capsys, "predict", *again, words, "--beam", "1")
    assert refusal(capsys, complete) == (
        "shard 3/3 has --beam 1 instead of None, unlike shard 1; run it again with --shard 3/3 "
        "--restart"
    )
    other = words.with_name("other.txt")
    other.write_text(words.read_text().replace("a", "b", 1))
    regard(capsys, "predict", *again, other)
    assert "shard 3/3 has another input than shard 1" in refusal(capsys, complete)
    regard(capsys, "predict", bundle, "--output", complete, "--input", words, "--shard", "1/4")
    assert "there are shards of 3 and of 4" in refusal(capsys, complete)


def test_join_takes_shards_by_name(complete, capsys):
    shards = [Shard(number, 3).path(complete) for number in (3, 1, 2)]
    regard(capsys, "join", complete.with_name("joined"), *shards)
    whole = b"".join(Shard(number, 3).path(complete).read_bytes() for number in (1, 2, 3))
    assert complete.with_name("joined").read_bytes() == whole
    assert "is not the file of a shard" in refusal(capsys, complete, complete.with_name("x"))
    assert "shard 2/3 and 1 more of" in refusal(capsys, complete, shards[1])
