"""Vector files: hand-written bytes, exact round trips, and errors with file and line."""

import gzip
import struct

import numpy as np
import pytest
import torch

from regard.errors import RegardError, UnknownName
from regard.vectors import Vectors
from regard.vectors import vector_formats as formats

WORDS, ROWS = ["the", "café", "-1"], [[1.0, -0.5, 0.25], [0.1, 2e-5, -3.0], [0.0, 0.0, 0.0]]
LINES = "the 1 -0.5 0.25\ncafé 0.1 2e-5 -3\n-1 0 0.0 0\n".encode()
TRUTH = torch.tensor(ROWS)


def record(word: str, row: list[float], end: bytes = b"\n") -> bytes:
    return word.encode() + b" " + struct.pack("<3f", *row) + end


def binary(end: bytes = b"\n") -> bytes:
    return b"3 3\n" + b"".join(
        record(word, row, end) for word, row in zip(WORDS, ROWS, strict=True)
    )


FILES = {
    "glove": LINES,
    "word2vec": b"3 3\n" + LINES,
    "word2vec-binary": binary(),
}


BROKEN = ": broken gzip file: Compressed file ended before the end-of-stream marker was reached"
HEADER = ":1: expected the header 'words dim', two whole numbers; got "
TWICE = ": word 2: 'a' already occurs at {file}: word 1"
INFINITE = ": word 1: the vector of 'a' contains NaN or infinity"
WORDLESS = ": word 1: the word before the numbers is missing"
UNKNOWN = ": unknown format; set format='word2vec' or 'word2vec-binary' or 'glove'"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "vectors"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("format", FILES)
def test_read_hand_written_files(file, format, packed, named):
    file.write_bytes(gzip.compress(FILES[format]) if packed else FILES[format])
    vectors = Vectors.read(file, format=format if named else None)
    assert vectors.words == WORDS
    assert vectors.table.dtype == torch.float32
    assert torch.equal(vectors.table, TRUTH)


@pytest.mark.parametrize("name", ["vectors", "vectors.gz"])
@pytest.mark.parametrize("format", FILES)
def test_round_trip_is_exact(tmp_path, format, name):
    table = (
        torch.randn(40, 6, generator=torch.manual_seed(0)) * torch.logspace(-37, 37, 40)[:, None]
    )
    words = [f"w{i}" for i in range(37)] + ["naïve", "日本", "7"]
    path = tmp_path / name
    Vectors(words, table.double()).write(path, format=format)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == (name == "vectors.gz")
    back = Vectors.read(path)
    assert back.words == words
    assert torch.equal(back.table, table)


def test_bytes_of_word2vec_binary(file):
    Vectors(WORDS, TRUTH).write(file, format="word2vec-binary")
    assert file.read_bytes() == binary()


def test_text_of_word2vec(file):
    Vectors(["a", "b"], torch.tensor([[1.0, -0.5], [0.125, 2.0]])).write(file)
    assert file.read_text() == "2 2\na 1 -0.5\nb 0.125 2\n"


def test_binary_records_may_lack_the_newline(file):
    file.write_bytes(binary(end=b""))
    assert Vectors.read(file).words == WORDS


def test_binary_with_an_early_newline_is_detected(file):
    number = struct.unpack("<f", b"\n12\x3f")[0]
    file.write_bytes(b"2 3\n" + record("a", [number, 1, 2]) + record("b", [number, 1, 2]))
    assert Vectors.read(file).words == ["a", "b"]


def test_text_sample_may_end_inside_a_character(file):
    file.write_text(
        "2 2\na 1 2\n12€ 3 4\n", encoding="utf-8"
    )  # the eighth byte after "a " is the second of three
    assert Vectors.read(file).words == ["a", "12€"]


def test_binary_is_read_across_chunks(file, monkeypatch):
    monkeypatch.setattr(formats, "_CHUNK", 5)
    file.write_bytes(binary())
    vectors = Vectors.read(file, format="word2vec-binary")
    assert (vectors.words, vectors.table.tolist()) == (WORDS, TRUTH.tolist())


@pytest.mark.parametrize(
    "line",
    [b". . . 0.5 1\nat me@here.com 2 3\n", b"a 0.5 1\n. . . 2 3\n", b"a  0.5\t1 \r\n1 b 2 3"],
)
def test_words_may_contain_spaces_in_text(file, line):
    file.write_bytes(line)
    vectors = Vectors.read(file)
    assert vectors.table.tolist() == [[0.5, 1], [2, 3]]
    assert set(vectors.words) <= {". . .", "at me@here.com", "a", "1 b"}
    vectors.write(file, format="glove")
    assert Vectors.read(file).words == vectors.words


def test_words_truncated_inside_a_character_are_read(file):
    file.write_bytes(b"1 3\ncaf\xc3 " + struct.pack("<3f", 1, 2, 3))
    assert Vectors.read(file).words == ["caf\\xc3"]


def test_blank_lines_may_end_a_file(file):
    file.write_bytes(b"2 1\na 1\nb 2\n\n \n")
    assert Vectors.read(file, format="word2vec").words == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        (b"", None, ": the file is empty"),
        (b"\n", None, ": the file is empty"),
        (b"", "glove", ":1: expected a word and its numbers; got ''"),
        (b"", "word2vec", HEADER + "''"),
        (b"0 3\n", None, ": the file has no words"),
        (b"3 0\n", None, HEADER + "'3 0'"),
        (LINES, "word2vec", HEADER + "'the 1 -0.5 0.25'"),
        (b"# a poem\nof two lines", None, UNKNOWN),
        (bytes(range(256)), None, UNKNOWN),
        (b"2 3\n" + LINES, None, ":1: the header says 2 words; the file has 3"),
        (b"4 3\n" + LINES, None, ":1: the header says 4 words; the file has 3"),
        (b"2 2\na 1 2\nb 1\n", None, ":3: 1 numbers instead of 2"),
        (b"2 2\na 1 2\nb 1 2 3\n", None, ":3: 3 numbers instead of 2"),
        (b"a\t1\t2\nb\t3\t4\nc\t9\t5\t6\n", None, ":3: 3 numbers instead of 2"),
        (b"a 1 2\n\nb 1 2\n", None, ":2: 0 numbers instead of 2"),
        (b"a 1 2\nb 1 two\n", None, ":2: 'two' is not a number"),
        (b"2 2\na 1 x\nb 1 2\n", None, ":2: 'x' is not a number"),
        (b"a 1 2\nb nan 2\n", None, ":2: the vector of 'b' contains NaN or infinity"),
        (b"2 2\na 1 2\nb 1e99 2\n", None, ":3: the vector of 'b' contains NaN or infinity"),
        (b"a 1 2\nb 1 2\na 1 2\n", None, ":3: 'a' already occurs at {file}:1"),
        (b"2 2\na 1 2\na 1 2\n", None, ":3: 'a' already occurs at {file}:2"),
        (binary()[:-2], None, ": truncated: the header says 3 words; the file ends in word 3"),
        (binary()[:-20], None, ": truncated: the header says 3 words; the file ends in word 2"),
        (binary() + record("more", [1, 2, 3]), None, ":1: the header says 3 words; more follow"),
        (b"2 3\n" + record("a", [1, 2, 3]) * 2, None, TWICE),
        (b"1 3\n" + record("a", [1, np.inf, 3]), None, INFINITE),
        (b"1 3\n" + record("", [1, 2, 3]), None, WORDLESS),
        (gzip.compress(binary(), mtime=0)[:-9], None, BROKEN),
    ],
)  # fmt: skip
def test_errors_name_file_and_line(file, content, format, message):
    file.write_bytes(content)
    with pytest.raises(RegardError) as error:
        Vectors.read(file, format=format)
    assert str(error.value) == f"{file}{message}".replace("{file}", str(file))


def test_unknown_format_is_named(file):
    file.write_bytes(LINES)
    message = "^unknown format 'word2vec-bin'; did you mean 'word2vec-binary'?"
    with pytest.raises(UnknownName, match=message):
        Vectors.read(file, format="word2vec-bin")
    with pytest.raises(UnknownName, match=message):
        Vectors(WORDS, TRUTH).write(file, format="word2vec-bin")
    assert file.read_bytes() == LINES


@pytest.mark.parametrize(
    ("word", "format", "message"),
    [
        (
            "a b",
            "word2vec-binary",
            "cannot be written in binary: it has a space; join its parts with '_'",
        ),
        (
            "",
            "word2vec-binary",
            "cannot be written in binary: it has a space; join its parts with '_'",
        ),
        ("a\nb", "glove", "cannot be written as text: it may only have single spaces inside"),
        (" a", "word2vec", "cannot be written as text: it may only have single spaces inside"),
        ("", "glove", "cannot be written as text: it may only have single spaces inside"),
        ("route 66", "glove", "cannot be written as text: '66' would be read as a number"),
    ],
)
@pytest.mark.parametrize("existing", [True, False])
def test_invalid_word_leaves_the_old_file(tmp_path, word, format, message, existing):
    path = tmp_path / "vectors.txt"
    if existing:
        path.write_text("before")
    with pytest.raises(RegardError) as error:
        Vectors(["first", word], torch.ones(2, 3)).write(path, format=format)
    assert str(error.value) == f"the word {word!r} {message}"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [
        ("vectors.txt", "before")
    ] * existing


def test_numbers_over_float32_are_not_written(file):
    with pytest.raises(RegardError, match=r"^the vector of 'b' does not fit into float32$"):
        Vectors(["a", "b"], torch.tensor([[1.0], [1e99]], dtype=torch.float64)).write(file)
    assert not file.exists()
