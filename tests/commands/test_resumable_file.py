"""ResumableFile: written once, complete or not at all, and resumed after any interruption."""

import resource

import pytest

from regard.commands import output_files as outputs
from regard.commands.inputs import InputLine
from regard.commands.output_files import ResumableFile
from regard.errors import RegardError


def lines(*texts: str) -> list[InputLine]:
    return [InputLine("here", text) for text in texts]


def answers(*texts: str) -> str:
    return "".join(f"{text.upper()}\n" for text in texts)


def left(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A job that was stopped after two of its windows, with half a third on the disk."""
    monkeypatch.setattr(outputs, "SAVE_SECONDS", 0.0)
    file = ResumableFile(tmp_path / "out", {"--beam": 4, "bundle": "x"})
    file.write(lines("a", "b"), answers("a", "b"))
    file.write(lines("c"), answers("c"))
    monkeypatch.setattr(outputs, "SAVE_SECONDS", 1e9)
    file.write(lines("d", "e"), answers("d", "e")[:-1])
    file._file.close()  # as a kill would, without a last note
    assert (tmp_path / "out.partial").read_text() == "A\nB\nC\nD\nE"
    return tmp_path / "out"


def test_incomplete_line_is_cut_and_the_rest_resumed(begun):
    file = ResumableFile(begun, {"--beam": 4, "bundle": "x"})
    assert file.done == 3
    assert (begun.parent / "out.partial").read_text() == "A\nB\nC\n"
    windows = [lines("a"), lines("b", "c", "d"), lines("e", "f")]
    assert list(file.remaining(iter(windows))) == [lines("d"), lines("e", "f")]
    file.write(lines("d", "e", "f"), answers("d", "e", "f"))
    assert not begun.exists()
    file.finish()
    file.close()
    assert begun.read_text() == "A\nB\nC\nD\nE\nF\n"
    assert left(begun.parent) == {"out"}


def test_other_options_and_inputs_are_refused(begun):
    way = "; use the same bundle, options and input, or start over with --restart"
    start = f"cannot resume '{begun}.partial': "
    for options, why in (
        ({"--beam": 1, "bundle": "x"}, "--beam was 4, now 1"),
        ({"--beam": 4, "bundle": "y"}, "it was written with another bundle"),
    ):
        with pytest.raises(RegardError) as refused:
            ResumableFile(begun, options)
        assert str(refused.value) == start + why + way
    for windows in ([lines("a", "b", "X", "d")], [lines("a", "b")], []):
        with (
            ResumableFile(begun, {"--beam": 4, "bundle": "x"}) as file,
            pytest.raises(RegardError) as refused,
        ):
            list(file.remaining(iter(windows)))
        assert str(refused.value) == f"{start}the first 3 lines of the input have changed{way}"
    with ResumableFile(begun, {"--beam": 1, "bundle": "y"}, restart=True) as fresh:
        assert fresh.done == 0
    assert (begun.parent / "out.partial").read_text() == ""


def test_altered_files_are_refused(begun):
    options, partial, progress = (
        {"--beam": 4, "bundle": "x"},
        begun.parent / "out.partial",
        begun.parent / "out.progress",
    )
    whole, noted = partial.read_bytes(), progress.read_bytes()
    for ours, theirs, why in (
        (b"A\nB", noted, "it has 3 bytes instead of 6"),
        (whole, b"{", "out.progress is damaged"),
        (whole, None, "out.progress is missing"),
    ):
        partial.write_bytes(ours)
        progress.unlink() if theirs is None else progress.write_bytes(theirs)
        with pytest.raises(RegardError, match="cannot resume .*" + why):
            ResumableFile(begun, options)
        assert partial.read_bytes() == ours
    partial.unlink()
    progress.write_bytes(
        noted
    )  # as after a kill between the last two steps of a job that had ended
    with ResumableFile(begun, options) as fresh:
        assert fresh.done == 0


def test_two_jobs_cannot_write_one_file(tmp_path):
    with ResumableFile(tmp_path / "out", {}) as one:
        with pytest.raises(
            RegardError,
            match=r"another process is writing '.*out.partial'; wait for it, or name another",
        ):
            ResumableFile(tmp_path / "out", {})
        one.write(lines("a"), "A\n")
        one.finish()
    assert (tmp_path / "out").read_text() == "A\n"


def test_full_disk_is_reported_and_nothing_counted(tmp_path):
    with ResumableFile(tmp_path / "out", {}) as file:
        file.write(lines("a"), "A\n")
        file._save_progress()
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, resource.RLIM_INFINITY))
        try:
            with pytest.raises(RegardError, match=r"cannot write '.*out': File too large"):
                file.write(lines("b"), "B" * 10_000 + "\n")
            file.close()
        finally:
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
    with ResumableFile(tmp_path / "out", {}) as file:
        assert file.done == 1
        assert (tmp_path / "out.partial").read_text() == "A\n"


OPTIONS = {"bundle": "x"}


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def stopped(tmp_path):
    """A job that was stopped after three lines, which came in two windows."""
    with ResumableFile(tmp_path / "out", OPTIONS) as file:
        file.write(lines("a", "b"), "A\nB\n")
        file.write(lines("c"), "C\n")
    return tmp_path / "out"


def kept_files(path) -> tuple[bytes, bytes]:
    return tuple(path.with_name(f"out.{role}").read_bytes() for role in ("partial", "progress"))


def goes_on(path) -> None:
    """The right input is taken, and answered to its end."""
    with ResumableFile(path, OPTIONS) as file:
        assert list(file.remaining(iter([lines("a", "b"), lines("c", "d")]))) == [lines("d")]
        file.write(lines("d"), "D\n")
        file.finish()
    assert path.read_text() == "A\nB\nC\nD\n"
    assert names(path.parent) == {"out"}


@pytest.mark.parametrize(
    "windows", [[lines("a", "X"), lines("c", "d")], [lines("a", "b", "X", "d")], [lines("a")], []]
)
def test_refused_resume_changes_nothing(stopped, windows):
    before = kept_files(stopped)
    for _ in range(3):
        with (
            ResumableFile(stopped, OPTIONS) as file,
            pytest.raises(RegardError, match="the first 3 lines of the input have changed"),
        ):
            list(file.remaining(iter(windows)))
        assert kept_files(stopped) == before
    goes_on(stopped)


def test_interrupt_while_skipping_loses_nothing(stopped):
    def interrupted():
        yield lines("a", "b")
        raise KeyboardInterrupt

    before = kept_files(stopped)
    with pytest.raises(KeyboardInterrupt), ResumableFile(stopped, OPTIONS) as file:
        list(file.remaining(interrupted()))
    with ResumableFile(stopped, OPTIONS):  # stopped before a single line was read
        pass
    assert kept_files(stopped) == before
    goes_on(stopped)


def test_interrupt_while_writing_counts_all_or_nothing(stopped, monkeypatch):
    def interrupted(sources, window):
        real(sources, window)
        raise KeyboardInterrupt

    real = outputs._add_to_hash
    with ResumableFile(stopped, OPTIONS) as file:
        assert list(file.remaining(iter([lines("a", "b", "c")]))) == []
        monkeypatch.setattr(outputs, "_add_to_hash", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.write(lines("d"), "half of ")
    monkeypatch.undo()
    assert file.done == 3
    goes_on(stopped)


def test_resumed_job_can_be_resumed_again(stopped):
    with ResumableFile(stopped, OPTIONS) as file:
        list(file.remaining(iter([lines("a", "b", "c", "d", "e")])))
        file.write(lines("d"), "D\n")
    with ResumableFile(stopped, OPTIONS) as file:
        assert file.done == 4
        assert list(file.remaining(iter([lines("a", "b", "c", "d", "e")]))) == [lines("e")]
