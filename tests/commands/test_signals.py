"""SIGTERM and SIGINT end every command with 128 + their number, and without a traceback."""

import os
import re
import signal
import sys
import time

import pytest

from regard.__main__ import main
from tests.commands.small import arguments, start, written

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", SIGNALS)
def test_predict_exits_with_the_code_of_the_signal(bundle, tmp_path, number):
    words = ["predict", str(bundle), "--output", str(tmp_path / "out"), "--input", "-"]
    process = start(words, stdin=-1)
    until = time.monotonic() + 300
    while not (tmp_path / "out.partial").exists() or not (tmp_path / "out.partial").read_text():
        assert time.monotonic() < until, process.kill()
        assert process.poll() is None, process.communicate()
        process.stdin.write("abc\n")
        process.stdin.flush()
        time.sleep(0.1)
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    way = "lines; run the same command again to resume"
    assert re.fullmatch(rf"{tmp_path / 'out'}: interrupted after \d+ {way}\n", err)
    assert {path.name for path in tmp_path.iterdir()} == {"out.partial", "out.progress"}


@pytest.mark.parametrize("number", SIGNALS)
def test_data_preparation_exits_with_the_code_of_the_signal(tmp_path, number):
    data = written(tmp_path / "pairs.tsv")
    held = tmp_path / "held.tsv"
    os.mkfifo(held)  # the command waits for the held-out pairs
    words = arguments(data, tmp_path / "run", "--held-out", str(held))
    process = start(words)
    with open(held, "w"):  # returns when the command opens it
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (128 + number, "", "")


class Interrupting:
    """An import hook: Ctrl-C is pressed while the command line is imported."""

    def find_spec(self, name: str, *rest: object) -> None:
        if name == "regard.cli":
            raise KeyboardInterrupt


def test_ctrl_c_while_modules_load_ends_quietly(monkeypatch):
    monkeypatch.delitem(sys.modules, "regard.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 128 + signal.SIGINT
