"""Progress reports: one updated line on a terminal, occasional lines in a log."""

import io
import os
import pty

import pytest

from regard.commands.progress import Progress
from tests.terminal import shown


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_log_gets_a_line_after_10_seconds_then_every_30(clock):
    file = io.StringIO()
    with Progress(lambda: 10_000, file=file, clock=clock) as progress:
        for _ in range(60):
            clock.now += 1
            progress.advance(100)
        assert file.getvalue().splitlines() == [
            "1,000 of 10,000 lines (10 %), 100 lines/s, 1 min 30 s left",
            "4,000 of 10,000 lines (40 %), 100 lines/s, 1 min 00 s left",
        ]
    assert file.getvalue().splitlines()[2:] == ["6,000 lines in 1 min 00 s, 100 lines/s"]


def test_short_job_reports_nothing(clock):
    file = io.StringIO()
    with Progress(lambda: 10, file=file, clock=clock) as progress:
        clock.now = 9
        progress.advance(10)
    assert file.getvalue() == ""


def test_resumed_lines_count_as_done_not_as_speed(clock):
    file = io.StringIO()
    with Progress(file=file, clock=clock, done=5_000) as progress:
        clock.now = 20
        progress.advance(100)
    assert file.getvalue().splitlines() == [
        "5,100 lines, 5 lines/s",
        "100 lines in 20 s, 5 lines/s",
    ]


def test_terminal_gets_one_updated_line(clock):
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as file, Progress(lambda: 400, file=file, clock=clock) as progress:
        for _ in range(4):
            clock.now += 1
            progress.advance(100)
        progress.warn("more", "look out")
    seen = shown(ours)
    assert seen.startswith(
        "\r\x1b[K100 of 400 lines (25 %), 100 lines/s, 3 s left\r\x1b[K200 of 400"
    )
    assert seen.endswith(
        "\r\x1b[Kregard: warning: look out\r\n\r\x1b[K400 lines in 4 s, 100 lines/s\r\n"
    )


def test_interactive_input_shows_no_progress(clock):
    file = io.StringIO()
    with Progress(file=file, clock=clock, quiet=True) as progress:
        clock.now = 100
        progress.advance(1)
    assert file.getvalue() == ""
