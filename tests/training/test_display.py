"""Displays: exact lines, the live view on a recorded console, and failures that do no harm."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console

from regard.terminal import format_duration, sanitize
from regard.training.display import (
    Display,
    LineDisplay,
    SafeDisplay,
    StepStatus,
    TerminalDisplay,
    open_display,
)
from tests.terminal import shown

SAMPLES = [
    ("hello", "HH AH L OW", "HH AH L OW"),
    ("[red]gnome[/]", "G N OW M", "N OW M"),
    ("esc\x1b[2J", "\x07x", "y"),
    ("fourth", "x", "y"),
]
METRICS = {
    "phone_error_rate": 8.254,
    "sequence_error_rate": 33.1,
    "count": 1200,
    "bleu_signature": "nrefs:1",
}


def trained(view: Display, tick=lambda: None) -> None:
    view.started({"model": "transformer", "parameters": 240_000})
    for step in range(1, 31):
        view.step(StepStatus(step, 1500, 2.5 / step, 1e-3, 12_345.6, 125.0))
        tick()
    view.evaluated(30, METRICS, SAMPLES)
    view.message("memory ran out; the batch is halved")
    view.finished({"phone_error_rate": 8.254, "bundle": "sounds"})


class Clock:
    now = 100.0

    def __call__(self):
        return self.now

    def tick(self):
        self.now += 1.0


PLAIN = """\
model: transformer
parameters: 240,000
step 1 of 1,500 (0 %), loss 2.5000, rate 1.00e-03, 12,346 tokens/s, 2 min 05 s left
step 11 of 1,500 (1 %), loss 0.2273, rate 1.00e-03, 12,346 tokens/s, 2 min 05 s left
step 21 of 1,500 (1 %), loss 0.1190, rate 1.00e-03, 12,346 tokens/s, 2 min 05 s left
step 30: phone error rate 8.25, sequence error rate 33.10, count 1,200
  hello → HH AH L OW (correct)
  [red]gnome[/] → G N OW M (reference: N OW M)
  esc�[2J → �x (reference: y)
memory ran out; the batch is halved
phone_error_rate: 8.25
bundle: sounds
"""


def test_line_display_output():
    file, clock = io.StringIO(), Clock()
    with LineDisplay(file, clock=clock) as view:
        trained(view, clock.tick)
    assert file.getvalue() == PLAIN


def test_time_left_may_be_unknown():
    file = io.StringIO()
    LineDisplay(file).step(StepStatus(1, 10, 1.0, 0.1, 5.0))
    assert file.getvalue() == "step 1 of 10 (10 %), loss 1.0000, rate 1.00e-01, 5 tokens/s\n"


def test_unencodable_characters_become_question_marks():
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    LineDisplay(file).message("é → ə")
    assert raw.getvalue() == b"? ? ?\n"


def test_a_pipe_gets_lines_without_control_characters():
    file = io.StringIO()
    with open_display(file) as view:
        assert isinstance(view.inner, LineDisplay)
        trained(view)
    assert not re.search(r"[^\n\x20-\x7e→�]", file.getvalue())


def recorded(**options) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, record=True, width=80, color_system=None, **options
    )


def test_terminal_display_output():
    console = recorded()
    view = TerminalDisplay(console)
    view.started({"parameters": 240_000})
    view.step(StepStatus(750, 1500, 1.25, 1e-3, 12_345.6, 61.0))
    view.evaluated(700, METRICS, SAMPLES)
    view.close()
    with console.capture() as capture:
        console.print(view.render())
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert re.fullmatch(r"━{35} +750/1,500", lines[0])
    assert len(lines[0]) == 80
    assert lines[1] == "loss 1.2500 · rate 1.00e-03 · 12,346 tokens/s · 1 min 01 s left"
    assert lines[2] == "step 700: phone error rate 8.25, sequence error rate 33.10, count 1,200"
    assert [line.split("  ")[0] for line in lines[3:]] == [
        "source",
        "hello",
        "[red]gnome[/]",
        "esc�[2J",
    ]
    assert re.fullmatch(r"\[red\]gnome\[/\] +G N OW M +N OW M", lines[5])


def test_wrong_samples_are_red_and_correct_ones_green():
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="standard")
    view = TerminalDisplay(console)
    view.evaluated(1, {}, SAMPLES)
    console.print(view.render())
    assert "\x1b[32mHH AH L OW" in console.file.getvalue()
    assert "\x1b[31mG N OW M" in console.file.getvalue()


def test_messages_stay_above_the_live_view():
    console = recorded()
    with TerminalDisplay(console) as view:
        trained(view)
    text = console.export_text()
    assert (
        text.index("parameters: 240,000")
        < text.index("memory ran out")
        < text.index("bundle: sounds")
    )


def test_the_live_view_is_redrawn_at_most_every_interval(monkeypatch):
    clock = Clock()
    view = TerminalDisplay(recorded(), every=10.0, clock=clock)
    drawn = []
    monkeypatch.setattr(view._screen, "refresh", lambda: drawn.append(clock.now))
    for step in range(30):
        view.step(StepStatus(step, 30, 1.0, 1.0, 1.0))
        clock.tick()
    assert drawn == [100.0, 110.0, 120.0]


HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_cursor_is_restored_after_an_error(error):
    console = recorded()

    def interrupted():
        with TerminalDisplay(console) as view:
            view.started({})
            raise error

    with pytest.raises(error):
        interrupted()
    assert console.file.getvalue().count(HIDDEN) == 1
    assert console.file.getvalue().rindex(SHOWN) > console.file.getvalue().rindex(HIDDEN)


class Broken(LineDisplay):
    """A view that fails like nothing anyone thought of."""

    closed = 0

    def message(self, text):
        raise ZeroDivisionError

    def close(self):
        self.closed += 1
        raise MemoryError


def test_a_failing_display_is_closed_once_and_silent():
    file = io.StringIO()
    broken = Broken(file)
    with SafeDisplay(broken, file) as view:
        view.message("a")
        view.message("b")
        trained(view)
    assert file.getvalue() == ""
    assert broken.closed == 1


def test_a_closed_file_does_not_stop_training():
    file = io.StringIO()
    view = open_display(file)
    file.close()
    with view:
        trained(view)
    assert view.inner is None


def test_ctrl_c_is_not_swallowed():
    class Interrupted(LineDisplay):
        def message(self, text):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SafeDisplay(Interrupted(io.StringIO()), io.StringIO()).message("x")


SCRIPT = """
import sys
from regard.training.display import open_display
with open_display(sys.stdout) as view:
    view.started({"parameters": 1})
    sys.stdin.readline()
    for step in range(9):
        view.message("x")
    view.evaluated(1, {"phone_error_rate": 1.0}, [("a", "b", "c")])
    view.finished({})
print("what others print must not fail either", flush=True)
print("still here", file=sys.stderr)
"""


def test_a_closed_pipe_does_not_stop_training():
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"parameters: 1\n"
    process.stdout.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.stderr.read() == b"still here\n"
    process.stderr.close()
    assert process.wait() == 0


def test_a_real_terminal_gets_the_live_view():
    ours, theirs = pty.openpty()
    script = """
from regard.training.display import StepStatus, open_display
with open_display() as view:
    view.started({})
    view.step(StepStatus(1, 2, 1.0, 1.0, 1.0))
    raise SystemExit(3)
"""
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60"}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=theirs, env=environment)
    assert process.wait() == 3
    os.close(theirs)
    seen = shown(ours)
    assert "loss 1.0000" in seen
    assert seen.rindex(SHOWN) > seen.rindex(HIDDEN)


def test_a_dumb_terminal_gets_lines(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(file, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_display(file).inner, LineDisplay)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_display(file).inner, TerminalDisplay)


def test_durations_have_at_most_two_units():
    printed = {
        0: "0 s",
        59.4: "59 s",
        59.6: "1 min 00 s",
        3599: "59 min 59 s",
        7325: "2 h 02 min",
        -1: "0 s",
    }
    assert {seconds: format_duration(seconds) for seconds in printed} == printed


def test_joiners_survive_and_bidirectional_overrides_do_not():
    assert sanitize("می\u200cخواهم \u202eabc\n") == "می\u200cخواهم �abc�"
