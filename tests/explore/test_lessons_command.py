"""`regard lesson`: the list, the address of a lesson, and the sizes of the page's scripts."""

import gzip
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.explore import STATIC
from regard.explore.lessons import LESSONS, lesson_address, lesson_table

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "explorer" / "src"
CODE = sorted((SOURCE / "lessons" / "python").glob("*.py"))


def test_the_list_is_that_of_the_page():
    text = (SOURCE / "lib" / "lesson-list.ts").read_text(encoding="utf-8")
    found = re.findall(r'entry\(\s*"(\w+)",\s*"(\w+)",\s*"([^"]+)"', text)
    assert {number: title for number, _, title in found} == LESSONS
    assert sorted(name for _, name, _ in found) == [path.stem for path in CODE]


def test_the_table_lists_all_lessons():
    lines = lesson_table().splitlines()
    assert lines[0] == "  1  Pooling as regression"
    assert len([line for line in lines if re.match(r" +(\d+|A)  ", line)]) == 11


def test_a_lesson_has_an_address():
    assert lesson_address("10") == "#/lessons?o.lesson=10"
    assert lesson_address("a") == "#/lessons?o.lesson=A"
    with pytest.raises(RegardError, match="unknown lesson '11'; choose one of 1, 2"):
        lesson_address("11")


def test_the_command_prints_the_address_of_the_lesson():
    command = [sys.executable, "-m", "regard", "lesson", "3", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    line = server.stdout.readline()
    server.send_signal(signal.SIGINT)
    assert server.wait(180) == 0
    server.stdout.close()
    assert re.search(r"http://127\.0\.0\.1:\d+/#/lessons\?o\.lesson=3 ", line)


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.stem)
def test_the_code_of_a_lesson_runs(path, capsys):
    """In this process, where warnings are errors too: a process each would import torch each."""
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 2
    assert max(map(len, path.read_text(encoding="utf-8").splitlines())) <= 100


def test_scaling_code_shows_what_the_lesson_states(capsys):
    runpy.run_path(str(SOURCE / "lessons" / "python" / "scaling.py"))
    lines = capsys.readouterr().out.splitlines()
    largest = [float(re.search(r"weight ([\d.]+)", line)[1]) for line in lines]
    assert largest[4] > 0.9 > 0.5 > largest[5]


def test_the_first_load_is_within_its_budget():
    first = sum(len(gzip.compress((STATIC / name).read_bytes())) for name in ("explorer.js",))
    assert first <= 150_000
    assert len(gzip.compress((STATIC / "lessons.js").read_bytes())) <= 100_000
