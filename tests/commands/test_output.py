"""`regard predict --output`: in order, whole, nothing lost and nothing doubled, however often it is stopped.

REGARD_KILLS=20 pytest tests/commands/test_output.py     kills twenty times instead of twice
"""

import itertools
import json
import os
import random
import resource
import signal
import time

import pytest

from regard.commands import output_files as outputs
from regard.commands.inputs import Line
from regard.commands.output_files import Kept
from regard.errors import RegardError
from tests.commands.small import pairs, regard, start

KILLS = int(os.environ.get("REGARD_KILLS", "2"))


def lines(*texts: str) -> list[Line]:
    return [Line("here", text) for text in texts]


def answers(*texts: str) -> str:
    return "".join(f"{text.upper()}\n" for text in texts)


def left(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def finished(process) -> str:
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    return said


def test_kills_lose_nothing_and_double_nothing(bundle, tmp_path):
    draw = random.Random(os.environ.get("REGARD_SEED", 1))
    found = [word for word, _ in pairs(1_300, seed=5)] * (7 * KILLS - 6)
    draw.shuffle(found)
    data, out, progress = tmp_path / "many.txt", tmp_path / "out.txt", tmp_path / "out.txt.progress"
    data.write_text("".join(f"{word}\n" for word in found))
    words = ["predict", str(bundle), "--input", str(data), "--n-best", "4", "--beam", "8", "--output"]
    for _ in range(KILLS):
        before = json.loads(progress.read_text())["lines"] if progress.exists() else -1
        process, until = start([*words, str(out)]), time.monotonic() + 120
        while time.monotonic() < until and process.poll() is None:
            if progress.exists() and json.loads(progress.read_text())["lines"] > max(0, before):
                break
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        process.kill()
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL, "the job ended before it was killed; make it longer"
        assert not out.exists()
    done = json.loads(progress.read_text())["lines"]
    assert 0 < done < len(found)
    assert finished(start([*words, str(out)])).splitlines()[0] == f"{out}: going on after {done:,} lines"
    finished(start([*words, str(tmp_path / "whole.txt")]))
    assert out.read_bytes() == (tmp_path / "whole.txt").read_bytes()
    numbers = [int(line.split("\t")[0]) for line in out.read_text().splitlines()]
    assert [number for number, _ in itertools.groupby(numbers)] == list(range(1, len(found) + 1))
    assert left(tmp_path) == {"many.txt", "out.txt", "whole.txt"}


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A job that was stopped after two of its windows, with half a third on the disk."""
    monkeypatch.setattr(outputs, "EVERY", 0.0)
    kept = Kept(tmp_path / "out", {"--beam": 4, "bundle": "x"})
    kept.write(lines("a", "b"), answers("a", "b"))
    kept.write(lines("c"), answers("c"))
    monkeypatch.setattr(outputs, "EVERY", 1e9)
    kept.write(lines("d", "e"), answers("d", "e")[:-1])
    kept._file.close()  # as a kill would, without a last note
    assert (tmp_path / "out.partial").read_text() == "A\nB\nC\nD\nE"
    return tmp_path / "out"


def test_half_a_line_is_cut_off_and_the_rest_goes_on(begun):
    kept = Kept(begun, {"--beam": 4, "bundle": "x"})
    assert kept.done == 3
    assert (begun.parent / "out.partial").read_text() == "A\nB\nC\n"
    windows = [lines("a"), lines("b", "c", "d"), lines("e", "f")]
    assert list(kept.left(iter(windows))) == [lines("d"), lines("e", "f")]
    kept.write(lines("d", "e", "f"), answers("d", "e", "f"))
    assert not begun.exists()
    kept.finish()
    kept.close()
    assert begun.read_text() == "A\nB\nC\nD\nE\nF\n"
    assert left(begun.parent) == {"out"}


def test_other_questions_are_not_mixed_in(begun):
    way = "; ask as before, or begin anew with --restart"
    start = f"cannot go on with '{begun}.partial': "
    for asked, why in (
        ({"--beam": 1, "bundle": "x"}, "--beam was 4 and is 1"),
        ({"--beam": 4, "bundle": "y"}, "the bundle was another one"),
    ):
        with pytest.raises(RegardError) as refused:
            Kept(begun, asked)
        assert str(refused.value) == start + why + way
    for windows in ([lines("a", "b", "X", "d")], [lines("a", "b")], []):
        with Kept(begun, {"--beam": 4, "bundle": "x"}) as kept, pytest.raises(RegardError) as refused:
            list(kept.left(iter(windows)))
        assert str(refused.value) == f"{start}the first 3 lines of the input were others{way}"
    with Kept(begun, {"--beam": 1, "bundle": "y"}, restart=True) as fresh:
        assert fresh.done == 0
    assert (begun.parent / "out.partial").read_text() == ""


def test_files_that_were_altered_are_refused(begun):
    asked, partial, progress = {"--beam": 4, "bundle": "x"}, begun.parent / "out.partial", begun.parent / "out.progress"
    whole, noted = partial.read_bytes(), progress.read_bytes()
    for ours, theirs, why in (
        (b"A\nB", noted, "it has 3 bytes, fewer than the 6 that were noted"),
        (whole, b"{", "out.progress was altered"),
        (whole, None, "there is no out.progress beside it"),
    ):
        partial.write_bytes(ours)
        progress.unlink() if theirs is None else progress.write_bytes(theirs)
        with pytest.raises(RegardError, match="cannot go on with .*" + why):
            Kept(begun, asked)
        assert partial.read_bytes() == ours
    partial.unlink()
    progress.write_bytes(noted)  # as after a kill between the last two steps of a job that had ended
    with Kept(begun, asked) as fresh:
        assert fresh.done == 0


def test_two_jobs_do_not_write_one_file(tmp_path):
    with Kept(tmp_path / "out", {}) as one:
        with pytest.raises(RegardError, match=r"out.partial' is being written by another process; wait for it"):
            Kept(tmp_path / "out", {})
        one.write(lines("a"), "A\n")
        one.finish()
    assert (tmp_path / "out").read_text() == "A\n"


def test_what_is_no_file_is_written_to_as_it_is(bundle, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        regard(capsys, "predict", bundle, "abc", "--output", pipe)
        assert os.read(reader, 100).endswith(b"\n")
        assert left(tmp_path) == {"pipe"}
    finally:
        os.close(reader)


def test_an_interrupt_says_how_to_go_on(bundle, tmp_path, capsys, monkeypatch):
    def stop(self, window, text):
        self.done += 2
        raise KeyboardInterrupt

    monkeypatch.setattr(Kept, "write", stop)
    _, said = regard(capsys, "predict", bundle, "abc", "dab", "--output", tmp_path / "out", code=130)
    line = f"{tmp_path / 'out'}: interrupted after 2 lines; the same command goes on from there"
    assert said.splitlines()[0] == line
    assert "Traceback" not in said


def test_a_job_that_fails_keeps_what_it_answered(bundle, tmp_path, capsys):
    data, out = tmp_path / "lines", tmp_path / "out"
    data.write_bytes(b"abc\n" * 64 + b"\xff\n")
    regard(capsys, "predict", bundle, "--input", data, "--output", out, code=2)
    data.write_bytes(b"abc\n" * 70)
    _, said = regard(capsys, "predict", bundle, "--input", data, "--output", out)
    assert said == f"{out}: going on after 64 lines\n"
    assert len(out.read_text().splitlines()) == 70


def test_a_disk_that_fills_up_is_said_and_nothing_is_counted(tmp_path):
    with Kept(tmp_path / "out", {}) as kept:
        kept.write(lines("a"), "A\n")
        kept._note()
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, resource.RLIM_INFINITY))
        try:
            with pytest.raises(RegardError, match=r"cannot write '.*out': File too large"):
                kept.write(lines("b"), "B" * 10_000 + "\n")
            kept.close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with Kept(tmp_path / "out", {}) as kept:
        assert kept.done == 1
        assert (tmp_path / "out.partial").read_text() == "A\n"
