"""Word-analogy files: right, wrong and unknown questions by section."""

import gzip

import pytest
import torch

from regard.errors import RegardError
from regard.vectors import Section, Vectors
from regard.vectors import word_vectors as word_vectors_module

# Countries on one axis, being a capital on another, big and small on a third.
WORDS = {
    "Paris": [3.0, 0.1, 1.0, 0.0],
    "France": [3.0, 0.1, 0.0, 0.0],
    "Rome": [0.2, 3.0, 1.0, 0.0],
    "Italy": [0.2, 3.0, 0.0, 0.0],
    "good": [0.0, 0.5, 0.0, 2.0],
    "better": [0.0, 0.5, 0.3, 3.0],
    "nothing": [0.0, 0.0, 0.0, 0.0],
}
QUESTIONS = """: capitals
Paris France Rome Italy
Rome Italy Paris France
Paris France Oslo Norway
Paris France Rome better

: comparatives of adjectives
good better bad worse
"""


@pytest.fixture
def vectors() -> Vectors:
    return Vectors(list(WORDS), torch.tensor(list(WORDS.values())))


def test_right_wrong_and_unknown_are_counted(vectors, tmp_path):
    file = tmp_path / "questions.txt"
    file.write_text(QUESTIONS)
    score = vectors.accuracy(file)
    assert score.sections == (
        Section("capitals", right=2, wrong=1, unknown=1),
        Section("comparatives of adjectives", right=0, wrong=0, unknown=1),
    )
    assert score.all == Section("all", right=2, wrong=1, unknown=2)
    assert (score.all.questions, score.all.accuracy) == (5, 2 / 3)
    assert score.sections[1].accuracy is None


def test_report_is_a_table(vectors, tmp_path):
    file = tmp_path / "questions.txt"
    file.write_text(QUESTIONS)
    assert str(vectors.accuracy(file)) == (
        "section                     accuracy     right     wrong   unknown\n"
        "capitals                       66.7%         2         1         1\n"
        "comparatives of adjectives         –         0         0         1\n"
        "all                            66.7%         2         1         2"
    )


def test_gzipped_and_without_sections(vectors, tmp_path):
    file = tmp_path / "questions.gz"
    file.write_bytes(gzip.compress(b"Paris France Rome Italy\r\n"))
    assert vectors.accuracy(file).sections == (Section("", right=1),)


def test_questions_can_be_lower_cased(vectors, tmp_path):
    file = tmp_path / "questions.txt"
    file.write_text("Paris France Rome Italy\n")
    lower = Vectors([word.lower() for word in WORDS], vectors.table)
    assert lower.accuracy(file).all == Section("all", unknown=1)
    assert lower.accuracy(file, lowercase=True).all == Section("all", right=1)


@pytest.mark.parametrize("options", [{}, {"excluding": False}, {"normalised": False}])
def test_accuracy_agrees_with_analogy(options, tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors_module, "_MAX_SCORES", 100)  # five questions at a time
    generator = torch.manual_seed(0)
    vectors = Vectors(
        [f"w{i}" for i in range(20)],
        torch.randn(20, 3, generator=generator) * torch.arange(1.0, 21)[:, None],
    )
    questions = [
        [f"w{i}" for i in torch.randperm(20, generator=generator)[:3].tolist()] for _ in range(23)
    ]
    best = [
        vectors.analogy(*abc, n=2, **options)[i % 2][0] for i, abc in enumerate(questions)
    ]  # the second best is wrong
    file = tmp_path / "questions.txt"
    file.write_text("\n".join(" ".join([*abc, d]) for abc, d in zip(questions, best, strict=True)))
    assert vectors.accuracy(file, **options).all == Section("all", right=12, wrong=11)


def test_question_words_may_win_without_exclusion(tmp_path):
    points = {
        "a": [1.0, 0.0, 0.0],
        "b": [1.0, 0.2, 0.0],
        "c": [0.0, 0.0, 1.0],
        "d": [0.0, 0.5, 0.5],
    }
    vectors = Vectors(list(points), torch.tensor(list(points.values())))
    file = tmp_path / "questions.txt"
    file.write_text("a b c d\na b c c\n: second\na b c c")
    assert vectors.accuracy(file).sections == (
        Section("", right=1, wrong=1),
        Section("second", wrong=1),
    )
    assert vectors.accuracy(file, excluding=False).sections == (
        Section("", right=1, wrong=1),
        Section("second", right=1),
    )


def test_question_with_a_zero_direction_is_wrong(vectors, tmp_path):
    file = tmp_path / "questions.txt"
    file.write_text(
        "Paris Paris nothing France\nRome Rome nothing Paris\nParis France Rome nothing\n"
    )
    assert vectors.accuracy(file, excluding=False).all == Section("all", wrong=3)
    assert vectors.accuracy(file).all == Section("all", wrong=3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b": capitals\nParis France Rome\n", ":2: a question has four words; got 3"),
        (b"a b c d e\n", ":1: a question has four words; got 5"),
        (b": capitals\n\n", ": no questions; a question is a line of four words"),
        (b"", ": no questions; a question is a line of four words"),
        (b": capitals\na b c \xff\n", ":2: not UTF-8 text: invalid start byte"),
    ],
)
def test_errors_name_file_and_line(vectors, tmp_path, content, message):
    file = tmp_path / "questions.txt"
    file.write_bytes(content)
    with pytest.raises(RegardError) as error:
        vectors.accuracy(file)
    assert str(error.value) == f"{file}{message}"


NAMES = [f"w{i}" for i in range(20)]


@pytest.mark.parametrize("size", [1e-23, 1e19])
def test_tiny_and_huge_tables(tmp_path, size):
    table = torch.randn(20, 8) * size
    vectors, rows = Vectors(NAMES, table), [("w1", "w2", "w3"), ("w4", "w5", "w6")]
    questions = [(*row, vectors.analogy(*row, n=1, normalised=False)[0][0]) for row in rows]
    (tmp_path / "questions.txt").write_text("\n".join(" ".join(row) for row in questions))
    assert vectors.accuracy(tmp_path / "questions.txt", normalised=False).all.right == 2


def test_byte_order_mark_is_ignored(tmp_path):
    path, mark = tmp_path / "f.txt", b"\xef\xbb\xbf"
    for text in (b"the 0.1 0.2 0.3\na 1 0 3\n", b"2 3\nthe 0.1 0.2 0.3\na 1 0 3\n"):
        path.write_bytes(mark + text)
        assert Vectors.read(path).words == ["the", "a"]
    for text in (b"w0 w1 w2 w3\n", b": sec\nw0 w1 w2 w3\n"):
        path.write_bytes(mark + text)
        assert Vectors(NAMES, torch.randn(20, 8)).accuracy(path).all.unknown == 0
