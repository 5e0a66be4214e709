"""The run log: one event per line, written at once; a kill costs at most the last line."""

import errno
import json
import os
import sys
import types
from datetime import UTC, datetime

import pytest

from regard.training import run_log
from regard.training.run_log import RunLog, RunLogError, read_log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run/log.jsonl"


def kinds(path):
    return [event["event"] for event in read_log(path)]


def test_an_event_is_written_at_once(path):
    before = datetime.now(UTC).replace(microsecond=0)
    log = RunLog(path)
    log.write("step", step=3, loss=1.25, text="é\n", metrics={"phone_error_rate": 8.5}, where=path)
    (line,) = path.read_text(encoding="utf-8").splitlines()
    event = json.loads(line)
    assert before <= datetime.fromisoformat(event.pop("time")) <= datetime.now(UTC)
    assert event == {
        "event": "step",
        "step": 3,
        "loss": 1.25,
        "text": "é\n",
        "metrics": {"phone_error_rate": 8.5},
        "where": str(path),
    }
    log.close()


def test_numbers_that_are_not_finite_become_text(path):
    with RunLog(path) as log:
        log.write("bad", loss=float("nan"), list=[1.0, float("-inf")])
    assert '"loss": "nan", "list": [1.0, "-inf"]' in path.read_text()


def test_a_resumed_log_is_continued(path):
    for step in (1, 2):
        with RunLog(path) as log:
            log.write("step", step=step)
    assert kinds(path) == ["step", "continued", "step"]
    assert list(read_log(path))[1]["removed_bytes"] == 0


@pytest.mark.parametrize(
    "rest",
    [
        b'{"event": "st',
        b"{",
        b"\x00" * 9000,
        b"\x00\x00\n",
        b'{"half": 1}\n{"event"',
        b'{"event": "whole but no end"}',
    ],
)
def test_an_incomplete_line_is_removed(path, rest):
    with RunLog(path) as log:
        log.write("first")
        log.write("long", text="x" * 9000)
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    with RunLog(path) as log:
        log.write("next")
    assert path.read_bytes().startswith(whole + b'{"event": "continued"')
    events = list(read_log(path))
    assert [event["event"] for event in events] == ["first", "long", "continued", "next"]
    assert events[2]["removed_bytes"] == len(rest)


def test_a_log_with_only_an_incomplete_line_starts_again(path):
    path.parent.mkdir()
    path.write_bytes(b'{"event": ')
    with RunLog(path) as log:
        log.write("first")
    assert kinds(path) == ["continued", "first"]


def test_reading_skips_an_incomplete_line_and_names_bad_ones(path):
    with RunLog(path) as log:
        log.write("first")
    good = path.read_bytes()
    path.write_bytes(good + b'{"event": "sec')
    assert kinds(path) == ["first"]
    path.write_bytes(good + b"scribble\n" + good)
    with pytest.raises(
        RunLogError, match=r"log.jsonl', line 2, is not an event; fix or remove the line$"
    ):
        list(read_log(path))
    with pytest.raises(RunLogError, match=r"^cannot read log '.*none': No such file or directory$"):
        list(read_log(path.parent / "none"))


def test_the_field_time_is_reserved(path):
    with RunLog(path) as log, pytest.raises(RunLogError, match="event 'step' has a field 'time'"):
        log.write("step", time=3)


class FullDisk:
    """A file that takes five bytes of a line and no more."""

    def __init__(self, file):
        self.file = file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, line):
        return self.file.write(line[:5])


def test_a_full_disk_leaves_no_incomplete_line(path):
    log = RunLog(path)
    log.write("first")
    before = path.read_bytes()
    file, log._file = log._file, FullDisk(log._file)
    with pytest.raises(
        RunLogError, match=rf"^cannot write log '.*': {os.strerror(errno.ENOSPC)}; fix this"
    ):
        log.write("second")
    assert path.read_bytes() == before
    file.close()


def test_a_folder_in_place_of_the_log_is_an_error(tmp_path):
    with pytest.raises(
        RunLogError, match=r"^cannot write log '.*': Is a directory; fix this and run again$"
    ):
        RunLog(tmp_path)


def test_missing_tensorboard_is_an_error(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(
        RunLogError, match=r"^TensorBoard is not installed; pip install 'regard\[tensorboard\]', or"
    ):
        RunLog(path, tensorboard=path.parent)


def test_tensorboard_gets_the_numbers_of_steps(path, monkeypatch):
    class Writer:
        def __init__(self, folder):
            self.folder, self.scalars, self.closed = folder, [], False

        def add_scalar(self, *scalar):
            self.scalars.append(scalar)

        def close(self):
            self.closed = True

    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer)
    )
    with RunLog(path, tensorboard=path.parent / "board") as log:
        log.write("step", step=7, loss=1.5, text="x", whole=True)
        log.write("evaluated", step=8, metrics={"phone_error_rate": 9, "signature": "s"})
        log.write("printed", loss=3.0)
        board = log._board
    assert board.folder == str(path.parent / "board")
    assert board.scalars == [("step/loss", 1.5, 7), ("evaluated/metrics/phone_error_rate", 9.0, 8)]
    assert board.closed


def test_the_last_line_is_found_across_blocks(tmp_path):
    file = tmp_path / "lines"
    for size in (4094, 4095, 4096, 4097, 8192):
        file.write_bytes(b"a" * 10 + b"\n" + b"b" * size + b"\n")
        with open(file, "rb") as opened:
            start, line = run_log._last_line(opened, size + 12)
        assert (start, line) == (11, b"b" * size + b"\n")
