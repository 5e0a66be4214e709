"""What a refused, failed or interrupted command leaves behind, and what it says of lines it left out."""

import builtins

import pytest

from regard.commands import evaluate as evaluating
from regard.commands import output_files as outputs
from regard.commands.inputs import Inputs, Line
from regard.commands.output_files import Kept
from regard.errors import RegardError
from tests.commands.small import pairs, regard, written

ASKED = {"bundle": "x"}
BAD = "skipped 1 bad line: 1 missing column (first at {}:2)"


def lines(*texts: str) -> list[Line]:
    return [Line("here", text) for text in texts]


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def stopped(tmp_path):
    """A job that was stopped after three lines, which came in two windows."""
    with Kept(tmp_path / "out", ASKED) as kept:
        kept.write(lines("a", "b"), "A\nB\n")
        kept.write(lines("c"), "C\n")
    return tmp_path / "out"


def kept_files(path) -> tuple[bytes, bytes]:
    return tuple(path.with_name(f"out.{role}").read_bytes() for role in ("partial", "progress"))


def goes_on(path) -> None:
    """The right input is taken, and answered to its end."""
    with Kept(path, ASKED) as kept:
        assert list(kept.left(iter([lines("a", "b"), lines("c", "d")]))) == [lines("d")]
        kept.write(lines("d"), "D\n")
        kept.finish()
    assert path.read_text() == "A\nB\nC\nD\n"
    assert names(path.parent) == {"out"}


@pytest.mark.parametrize("windows", [[lines("a", "X"), lines("c", "d")], [lines("a", "b", "X", "d")], [lines("a")], []])
def test_a_refused_resume_changes_nothing(stopped, windows):
    before = kept_files(stopped)
    for _ in range(3):
        with (
            Kept(stopped, ASKED) as kept,
            pytest.raises(RegardError, match="the first 3 lines of the input were others"),
        ):
            list(kept.left(iter(windows)))
        assert kept_files(stopped) == before
    goes_on(stopped)


def test_an_interrupt_while_skipping_loses_nothing(stopped):
    def interrupted():
        yield lines("a", "b")
        raise KeyboardInterrupt

    before = kept_files(stopped)
    with pytest.raises(KeyboardInterrupt), Kept(stopped, ASKED) as kept:
        list(kept.left(interrupted()))
    with Kept(stopped, ASKED):  # stopped before a single line was read
        pass
    assert kept_files(stopped) == before
    goes_on(stopped)


def test_an_interrupt_while_writing_counts_the_window_wholly_or_not_at_all(stopped, monkeypatch):
    def interrupted(sources, window):
        real(sources, window)
        raise KeyboardInterrupt

    real = outputs._seen
    with Kept(stopped, ASKED) as kept:
        assert list(kept.left(iter([lines("a", "b", "c")]))) == []
        monkeypatch.setattr(outputs, "_seen", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.write(lines("d"), "half of ")
    monkeypatch.undo()
    assert kept.done == 3
    goes_on(stopped)


def test_a_job_that_went_on_and_was_stopped_again_goes_on(stopped):
    with Kept(stopped, ASKED) as kept:
        list(kept.left(iter([lines("a", "b", "c", "d", "e")])))
        kept.write(lines("d"), "D\n")
    with Kept(stopped, ASKED) as kept:
        assert kept.done == 4
        assert list(kept.left(iter([lines("a", "b", "c", "d", "e")]))) == [lines("e")]


def test_another_input_is_refused_each_time_and_never_mixed_in(bundle, tmp_path, capsys):
    words = [word for word, _ in pairs(80, seed=3)]
    right, wrong, out = tmp_path / "right", tmp_path / "wrong", tmp_path / "out"
    right.write_bytes("".join(f"{word}\n" for word in words[:64]).encode() + b"\xff\n")
    wrong.write_text("".join(f"{word}\n" for word in reversed(words)))
    regard(capsys, "predict", bundle, "--input", right, "--output", out, code=2)  # stops after 64 answers
    before = kept_files(out)
    for _ in range(2):
        regard(capsys, "predict", bundle, "--input", wrong, "--output", out, code=2)
        assert kept_files(out) == before
    right.write_text("".join(f"{word}\n" for word in words))
    regard(capsys, "predict", bundle, "--input", right, "--output", out)
    regard(capsys, "predict", bundle, "--input", right, "--output", tmp_path / "whole")
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def test_evaluate_refuses_an_output_before_it_answers(bundle, tmp_path, capsys, monkeypatch):
    def never(*_):
        raise AssertionError("a question was answered")

    monkeypatch.setattr(evaluating, "answered", never)
    data, nowhere = written(tmp_path / "pairs.tsv"), tmp_path / "no/out"
    for out, why in ((nowhere, "No such file or directory"), (tmp_path, "it is a folder; name a file in it")):
        printed, said = regard(capsys, "evaluate", bundle, data, "--output", out, code=2)
        assert (printed, said) == ("", f"regard: cannot write '{out}': {why}\n")
    assert names(tmp_path) == {"pairs.tsv"}


def test_an_evaluation_that_fails_leaves_no_half_file(bundle, tmp_path, capsys):
    data, out = tmp_path / "pairs.tsv", tmp_path / "out"
    data.write_text("a\tb\nlonely\n")
    out.write_text("as before")
    (tmp_path / "out.partial").write_text("of a prediction")
    regard(capsys, "evaluate", bundle, data, "--output", out, code=2)
    assert out.read_text() == "as before"
    assert (tmp_path / "out.partial").read_text() == "of a prediction"
    assert names(tmp_path) == {"pairs.tsv", "out", "out.partial"}


def test_metrics_are_printed_even_if_the_disk_fills_up_meanwhile(bundle, tmp_path, capsys, monkeypatch):
    full, real = tmp_path / ".out.partial", builtins.open

    def opened(path, *words, **options):
        return real("/dev/full" if path == full else path, *words, **options)

    monkeypatch.setattr(evaluating, "open", opened, raising=False)
    data = written(tmp_path / "pairs.tsv", pairs(5))
    printed, said = regard(capsys, "evaluate", bundle, data, "--output", tmp_path / "out", code=2)
    assert printed.startswith("5 questions with 5 right answers, ")
    assert said == f"regard: cannot write '{tmp_path / 'out'}': No space left on device\n"
    assert names(tmp_path) == {"pairs.tsv"}


def test_score_says_what_it_left_out(bundle, tmp_path, capsys):
    data = tmp_path / "pairs.tsv"
    data.write_text("ab\tba\nlonely\ncd\tdc\n")
    printed, said = regard(capsys, "score", bundle, data, "--bad-lines", "skip")
    assert [line.split("\t")[1:] for line in printed.splitlines()] == [["ab", "ba"], ["cd", "dc"]]
    left_out, perplexity = said.splitlines()
    assert left_out == BAD.format(data)
    assert perplexity.startswith("2 pairs, ")


@pytest.mark.parametrize(("name", "between"), [("a.tsv", "\t"), ("a.csv", ",")])
@pytest.mark.parametrize("blank", ["", "\n", "\n \r\n\n"])
def test_a_column_begins_after_its_name_also_below_blank_lines(tmp_path, name, between, blank):
    rows = (("id", "word"), ("1", "cat"), ("2", "dog"))
    (tmp_path / name).write_text(blank + "".join(f"{between.join(row)}\n" for row in rows), newline="")
    inputs = Inputs(files=[str(tmp_path / name)], column="word")
    assert [line.text for window in inputs.windows() for line in window] == ["cat", "dog"]
