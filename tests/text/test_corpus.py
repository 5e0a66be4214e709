"""Corpora: every format, reported decisions, and bad lines with location and reason."""

import csv
import gzip
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.errors import UnknownName
from regard.text import Corpus, Pair
from regard.text.files import CorpusError

PAIRS = [("eins", "one"), ("zwei, drei", 'two "three"'), ("größer", "bigger")]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write_file(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write_file


def tsv(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def as_csv(pairs: list[tuple[str, str]], **options: str) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, **options).writerows(pairs)  # type: ignore[arg-type]
    return text.getvalue()


def as_json(pairs: list[tuple[str, str]]) -> str:
    return "".join(
        json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs
    )


# ---- formats


TWO = "no header; source is column 1 and target column 2 of 2"
NAME, HEAD = "(by its name)", "(by its first lines)"


@pytest.mark.parametrize(
    ("name", "content", "description"),
    [
        ("a.tsv", tsv(PAIRS), f"tab-separated, {TWO} {NAME}"),
        ("a.txt", tsv(PAIRS), f"tab-separated, {TWO} {HEAD}"),
        ("a.csv", as_csv(PAIRS), f"CSV with ',' between fields, {TWO} {NAME}"),
        ("a", as_csv(PAIRS), f"CSV with ',' between fields, {TWO} {HEAD}"),
        ("b.csv", as_csv(PAIRS, delimiter=";"), f"CSV with ';' between fields, {TWO} {NAME}"),
        ("a.jsonl", as_json(PAIRS), f"JSON lines, source is 'source' and target 'target' {NAME}"),
        (
            "c.csv.gz",
            gzip.compress(as_csv(PAIRS).encode(), mtime=0),
            f"CSV with ',' between fields, {TWO} {NAME}",
        ),
        ("a.data", as_json(PAIRS), f"JSON lines, source is 'source' and target 'target' {HEAD}"),
    ],
)
def test_formats_are_detected_and_reported(
    write: Callable[..., str], name: str, content: str | bytes, description: str
):
    path = write(name, content)
    corpus = Corpus(path)
    assert list(corpus) == PAIRS
    assert corpus.decisions == [f"{path}: {description}"]


def test_csv_written_by_python_is_read_back(write: Callable[..., str]):
    draw = random.Random(3)
    pairs = [
        tuple("x" + "".join(draw.choices('a,";\n |', k=6)) + "y" for _ in range(2))
        for _ in range(300)
    ]
    for delimiter in ",;|":
        path = write("random.csv", as_csv(pairs, delimiter=delimiter))
        assert list(Corpus(path)) == pairs


def test_parallel_files(write: Callable[..., str]):
    source, target = write("t.de", "eins\nzwei\n"), write("t.en.gz", gzip.compress(b"one\ntwo\n\n"))
    corpus = Corpus(source, target)
    assert list(corpus) == [("eins", "one"), ("zwei", "two")]
    assert corpus.decisions == [f"{source} and {target}: parallel files, line by line"]


def test_several_files_of_several_formats(write: Callable[..., str]):
    corpus = Corpus(
        [
            write("a.tsv", tsv(PAIRS)),
            write("b.jsonl.gz", gzip.compress(as_json(PAIRS[:1]).encode())),
        ]
    )
    assert list(corpus) == [*PAIRS, PAIRS[0]]
    two = Corpus(
        [write("1.s", "a\nb"), write("2.s", "c")], [write("1.t", "A\nB"), write("2.t", "C")]
    )
    assert list(two) == [("a", "A"), ("b", "B"), ("c", "C")]


def test_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(tsv(PAIRS).encode())))
    corpus = Corpus("-")
    assert list(corpus) == list(corpus) == PAIRS
    assert corpus.decisions[0].startswith("standard input: tab-separated")


def test_surrounding_white_space_is_stripped(write: Callable[..., str]):
    assert list(Corpus(write("a.tsv", " a  b \t\u3000c\r\n"))) == [Pair("a  b", "c")]


# ---- columns


def test_columns_by_name_number_and_guess(write: Callable[..., str]):
    path = write("a.tsv", "id\ten\tde\n7\tone\teins\n")
    assert list(Corpus(path, source="de", target="en")) == [("eins", "one")]
    assert list(Corpus(path, source="3", target=2, header=True)) == [("eins", "one")]
    assert list(Corpus(path, source=3, target=2)) == [("eins", "one")]
    both = Corpus(path, source=3, target=2, header=False)
    assert list(both) == [("de", "en"), ("eins", "one")]
    known = write("b.csv", "Target,n,Source\none,1,eins\n")
    corpus = Corpus(known)
    assert list(corpus) == [("eins", "one")]
    assert "with a header; source is column 3 and target column 1 of 3" in corpus.decisions[0]
    first_two = Corpus(known, source=1, target=2, header=False)
    assert list(first_two) == [("Target", "n"), ("one", "1")]
    assert list(Corpus(write("c.tsv", "src\ttgt\na\tb\n"), source=1, target=2)) == [("a", "b")]


def test_json_columns(write: Callable[..., str]):
    nested = write("a.jsonl", '{"id": 1, "translation": {"de": "eins", "en": "one"}}\n')
    assert list(Corpus(nested, source="translation.de", target="translation.en")) == [
        ("eins", "one")
    ]
    assert list(Corpus(write("b.jsonl", '["eins", "one", 3]\n'))) == [("eins", "one")]
    assert list(Corpus(write("c.jsonl", '["eins", "one", "un"]\n'), source=3, target=1)) == [
        ("un", "eins")
    ]
    assert list(Corpus(write("d.jsonl", '{"word": "a", "sound": "AH"}\n'))) == [("a", "AH")]
    assert list(Corpus(write("e.jsonl", '{"a.b": "x", "c": "y"}\n'), source="a.b", target="c")) == [
        ("x", "y")
    ]


NO_COLUMN = "{}, read as %s, has %s; there is no column %s (counted from 1)"
INVALID = [
    (
        "a.tsv",
        "src\ten\n",
        {"source": "sr", "target": "en"},
        "{}: the first line has no column 'sr'; did you mean 'src'?",
    ),
    ("a.tsv", "a\tb\n", {"source": 1, "target": 3}, NO_COLUMN % ("tab-separated", "2 columns", 3)),
    ("a.tsv", "a,b\n", {}, NO_COLUMN % ("tab-separated", "1 column", 2)),
    ("a.csv", "a,b\n", {"source": 0, "target": 1}, NO_COLUMN % ("CSV", "2 columns", 0)),
    (
        "a.tsv",
        "a\tb\n",
        {"source": 1},
        "the source column is 1 but the target column is not set; set both or neither",
    ),
    (
        "a.tsv",
        "a\tb\n",
        {"target": 2},
        "the target column is 2 but the source column is not set; set both or neither",
    ),
    (
        "a.tsv",
        "a\tb\n",
        {"source": "a", "target": "b", "header": False},
        "{}: columns are named ('a', 'b') but header is False; number them from 1 instead",
    ),
    (
        "a.txt",
        "one column\nonly\n",
        {},
        "{} seems to have one column: no tabs, commas or JSON in its first lines; "
        "give pairs, or a second file whose lines are the targets",
    ),
    ("a.tsv", "\n \n", {}, "{} is empty"),
    ("a.json", '[\n["a", "b"]\n]\n', {}, "{} is not JSON lines; write one object per line (jq -c)"),
    (
        "a.jsonl",
        '{"a": "x", "b": "y", "c": "z"}\n',
        {},
        "{}: which of 'a', 'b', 'c' are source and target? Name both with --source and --target",
    ),
    (
        "a.jsonl",
        "3\n",
        {},
        "{}: which of no columns are source and target? Name both with --source and --target",
    ),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), INVALID)
def test_invalid_columns_and_formats(
    write: Callable[..., str], name: str, content: str, options: dict[str, Any], message: str
):
    path = write(name, content)
    with pytest.raises(CorpusError) as error:
        Corpus(path, **options)
    assert str(error.value) == message.format(path)


def test_wrong_arguments(write: Callable[..., str]):
    path = write("a.tsv", tsv(PAIRS))
    with pytest.raises(
        UnknownName, match=r"^unknown bad-line policy 'skp'; did you mean 'skip'\?$"
    ):
        Corpus(path, bad_lines="skp")
    with pytest.raises(UnknownName, match=r"^unknown format 'tvs'; did you mean 'tsv'\?$"):
        Corpus(path, format="tvs")
    with pytest.raises(
        CorpusError, match=r"^no files of pairs given; put them first, because --targets"
    ):
        Corpus([])
    with pytest.raises(CorpusError, match=r"^standard input \('-'\) can be given only once$"):
        Corpus(["-", "-"])
    with pytest.raises(
        CorpusError, match=r"^2 source files but 1 target files; each needs a counterpart$"
    ):
        Corpus([path, path], path)
    with pytest.raises(
        CorpusError,
        match=r"^parallel files do not have columns, a header or a format; omit these options$",
    ):
        Corpus(path, path, source=1, target=2)


# ---- bad lines

GOOD = "a\tb\n"
FIX = "; fix the line, or skip it with --bad-lines skip"
ENCODING_FIX = "; fix the line, name the --encoding, or skip it with --bad-lines skip"
TABS, ARRAYS, OBJECTS = GOOD * 3, '["a", "b"]\n' * 3, as_json([("a", "b")]) * 3
BAD = {
    "missing column": ("a.tsv", TABS + "only one\n", "1 column only, but the target is column 2"),
    "extra column": (
        "a.tsv",
        TABS + "a\tb\tc\n",
        "3 columns where the file has 2; is a delimiter inside the text?",
    ),
    "broken UTF-8": (
        "a.tsv",
        TABS.encode() + b"a\xffc\td\n",
        "byte 2 of the line, 0xFF, is not valid UTF-8",
    ),
    "empty side": ("a.tsv", TABS + "a\t \n", "the target is empty"),
    "empty source": ("a.tsv", TABS + "\tb\n", "the source is empty"),
    "empty line": ("a.tsv", TABS + "\n", "the line is empty"),
    "broken CSV": (
        "a.csv",
        "a,b\n" * 3 + '"x"y,b\n',
        "a quote is misplaced (',' expected after '\"')",
    ),
    "broken JSON": (
        "a.jsonl",
        ARRAYS + '["a", \n',
        "the line is not valid JSON: Expecting value: line 1 column 7 (char 6)",
    ),
    "no key": (
        "a.jsonl",
        OBJECTS + '{"surce": "x"}\n',
        "no source: there is no 'source'; did you mean 'surce'?",
    ),
    "no object": (
        "a.jsonl",
        OBJECTS + "[1]\n",
        "no source: 'source' was requested, but its parent is not an object",
    ),
    "no array": (
        "a.jsonl",
        ARRAYS + "{}\n",
        "no source: column 1 was requested, but the line is not an array",
    ),
    "short array": (
        "a.jsonl",
        ARRAYS + '["a"]\n',
        "no target: column 2 was requested from an array of 1",
    ),
    "not text": ("a.jsonl", ARRAYS + '["a", 7]\n', "the target is 7, not a string"),
    "surrogate": (
        "a.jsonl",
        ARRAYS + r'["a", "\ud800"]' + "\n",
        "the target has half a surrogate pair",
    ),
    "empty JSON line": ("a.jsonl", ARRAYS + "\n", "the line is empty"),
    "bad UTF-8 in CSV": (
        "a.csv",
        b"a,b\n" * 3 + b"\xc3,b\n",
        "byte 1 of the line, 0xC3, is not valid UTF-8",
    ),
}
CATEGORY = {"empty source": "empty side", "no key": "missing column", "no object": "missing column"}
CATEGORY |= {
    "no array": "missing column",
    "short array": "missing column",
    "surrogate": "broken UTF-8",
}
CATEGORY |= {"empty JSON line": "empty line", "bad UTF-8 in CSV": "broken UTF-8"}


def with_good_line(content: str | bytes) -> bytes:
    """The content and one more good line (a copy of the first)."""
    content = content.encode() if isinstance(content, str) else content
    return content + content.split(b"\n")[0] + b"\n"


@pytest.mark.parametrize("bad", BAD)
def test_bad_line_raises_with_its_location(write: Callable[..., str], bad: str):
    name, content, detail = BAD[bad]
    path = write(name, with_good_line(content))
    with pytest.raises(CorpusError) as error:
        list(Corpus(path))
    fix = ENCODING_FIX if "valid UTF-8" in detail else FIX
    assert str(error.value) == f"{path}:4: {detail}{fix}"


@pytest.mark.parametrize("bad", BAD)
def test_bad_line_is_skipped_counted_and_saved(write: Callable[..., str], bad: str, tmp_path: Path):
    name, content, detail = BAD[bad]
    path = write(name, with_good_line(content))
    reason = CATEGORY.get(bad, bad)
    reading = Corpus(path, bad_lines="skip").read(bad_lines_path=tmp_path / "bad.txt")
    assert list(reading) == [("a", "b")] * 4
    assert reading.pairs == 4
    assert reading.problems == {reason: 1}
    assert reading.summary() == f"skipped 1 bad line: 1 {reason} (first at {path}:4)"
    raw = with_good_line(content).split(b"\n")[3]
    assert (
        tmp_path / "bad.txt"
    ).read_bytes() == f"{path}:4\t{reason}: {detail}\t".encode() + raw + b"\n"


def test_empty_lines_at_the_end_are_ignored(write: Callable[..., str]):
    assert list(Corpus(write("a.tsv", GOOD + "\n\r\n \n"))) == [("a", "b")]
    assert list(Corpus(write("a.s", "a\n\n\n"), write("a.t", "b\n\n"))) == [("a", "b")]


def test_unclosed_quote(write: Callable[..., str]):
    path = write("a.csv", "a,b\n" * 3 + '"never,closed\n' + "a,b\n" * 50_000)
    with pytest.raises(
        CorpusError,
        match=rf"^{path}:4: a quoted field is not closed \(field larger than field limit",
    ):
        list(Corpus(path))
    short = write("b.csv", "a,b\n" * 3 + '"never,closed\na,b\n')
    with pytest.raises(
        CorpusError, match=rf"^{short}:4: a quoted field is not closed \(unexpected end of data\)"
    ):
        list(Corpus(short))


def test_line_over_the_size_limit(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch):
    path = write("a.tsv", GOOD + "x" * (17 << 20) + "\ty\n" + GOOD)
    with pytest.raises(CorpusError, match=rf"^{path}:2: the line is longer than 16 MiB"):
        list(Corpus(path))
    assert len(list(Corpus(path, bad_lines="skip"))) == 2


def test_parallel_files_of_unequal_length(write: Callable[..., str]):
    long, short = write("long", "a\nb\nc\n"), write("short", "A\n")
    message = (
        f"{long} has 2 lines more than {short}, from line 2; parallel files must match line by line"
    )
    for files in ((long, short), (short, long)):
        for bad_lines in ("stop", "skip"):  # the alignment is unknown, so skipping cannot help
            with pytest.raises(CorpusError) as error:
                list(Corpus(*files, bad_lines=bad_lines))
            assert str(error.value) == message


def test_bad_lines_of_parallel_files(write: Callable[..., str]):
    source, target = write("s", "a\nb\n\n\nc\n"), write("t", b"A\n\xff\nx\n\nC\n")
    with pytest.raises(
        CorpusError, match=rf"^{source}:2: in the target file, byte 1 of the line, 0xFF"
    ):
        list(Corpus(source, target))
    reading = Corpus(source, target, bad_lines="skip").read()
    assert list(reading) == [("a", "A"), ("c", "C")]
    assert reading.problems == {"broken UTF-8": 1, "empty side": 1, "empty line": 1}


def test_truncated_archive(write: Callable[..., str]):
    packed = gzip.compress(tsv([(str(i), str(i * 7919 % 10007)) for i in range(30_000)]).encode())
    cut, whole = write("cut.tsv.gz", packed[: len(packed) // 2]), write("whole.tsv", GOOD)
    with pytest.raises(
        CorpusError, match=rf"^{cut} is truncated after line [\d,]+; copy it again$"
    ):
        list(Corpus([cut, whole]))
    reading = Corpus([cut, whole], bad_lines="skip").read()
    assert list(reading)[-1] == ("a", "b")
    assert reading.summary() == f"skipped 1 bad line: 1 damaged file (first at {cut})"
    unsealed = write(
        "unsealed.tsv.gz", gzip.compress(tsv(PAIRS).encode())[:-4]
    )  # complete except for the checksum
    with pytest.raises(
        CorpusError, match=rf"^{unsealed} is truncated after line 3; copy it again$"
    ):
        list(Corpus(unsealed))
    assert list(Corpus(unsealed, bad_lines="skip")) == PAIRS


def test_corpus_without_pairs(write: Callable[..., str]):
    path = write("a.tsv", "source\ttarget\n")
    with pytest.raises(CorpusError, match=rf"^no pairs in {path}$"):
        list(Corpus(path))
    bad = write("b.tsv", "a\t\n")
    with pytest.raises(
        CorpusError,
        match=rf"^no pairs in {bad}; skipped 1 bad line: 1 empty side \(first at {bad}:1\)$",
    ):
        list(Corpus(bad, bad_lines="skip"))


def test_unfinished_pass_leaves_no_file(write: Callable[..., str], tmp_path: Path):
    path = write("a.tsv", GOOD + "bad\n" + GOOD)
    reading = iter(Corpus(path, bad_lines="skip").read(bad_lines_path=tmp_path / "bad.txt"))
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert [file.name for file in tmp_path.iterdir()] == ["a.tsv"]
    with pytest.raises(
        CorpusError, match=r"^cannot write bad lines to '.*no/bad.txt': No such file or directory$"
    ):
        list(Corpus(path, bad_lines="skip").read(bad_lines_path=tmp_path / "no/bad.txt"))


def test_fingerprint_covers_data_and_settings(write: Callable[..., str]):
    path = write("a.tsv", GOOD * 2)
    first = Corpus(path).fingerprint()
    assert first == Corpus(path).fingerprint()
    assert first.keys() == {"a.tsv", "reading"}
    other = Corpus(path, source=2, target=1).fingerprint()
    assert other["a.tsv"] == first["a.tsv"]
    assert other["reading"] != first["reading"]
    write("a.tsv", GOOD * 3)
    assert Corpus(path).fingerprint()["a.tsv"] != first["a.tsv"]


def test_fingerprint_ignores_folders(write: Callable[..., str], tmp_path: Path, monkeypatch):
    write("a.tsv", GOOD)
    (tmp_path / "more").mkdir()
    (tmp_path / "more/a.tsv").write_text(GOOD * 2)
    monkeypatch.chdir(tmp_path)
    first = Corpus(["a.tsv", "more/a.tsv"]).fingerprint()
    assert len(first) == 3
    assert Corpus([tmp_path / "a.tsv", "./more/../more/a.tsv"]).fingerprint() == first
    assert Corpus(["more/a.tsv", "a.tsv"]).fingerprint() != first


@pytest.mark.parametrize("rest", ['"x",y\n' * 2, "c,d\n" * 2, "c,d\n" * 40_000])
def test_stray_quote_affects_only_its_line(write: Callable[..., str], tmp_path: Path, rest: str):
    path = write("a.csv", "a,b\n" * 3 + '"what,is this\n' + rest)
    reading = Corpus(path, bad_lines="skip").read(tmp_path / "bad.txt")
    assert len(list(reading)) == 3 + rest.count("\n")
    assert reading.problems == {"broken CSV": 1}
    assert (tmp_path / "bad.txt").read_text().endswith('\t"what,is this\n')


def test_bare_carriage_returns_end_lines(write: Callable[..., str]):
    assert list(Corpus(write("a.tsv", b"a\tb\rc\td\r"))) == [("a", "b"), ("c", "d")]
    assert list(Corpus(write("b.tsv", b"a\tb\r\nc\td\r"))) == [("a", "b"), ("c", "d")]
    assert list(Corpus(write("c.tsv", b"a\tb"))) == [("a", "b")]
