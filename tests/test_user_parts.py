"""User-defined parts: importing the user's own files, in Python and on the command line."""

import sys
from pathlib import Path

import pytest

import regard
from regard.attention import NORMALISERS
from regard.attention.normalisers import Normaliser
from regard.errors import RegardError
from regard.registry import import_file, import_files
from tests.commands.small import regard as command

PART = """
from regard.attention.normalisers import NORMALISERS, Softmax

RUNS = []
RUNS.append("run")

@NORMALISERS.register("{name}")
class Mine(Softmax):
    pass
"""


@pytest.fixture
def part(tmp_path):
    """A file that registers a normaliser, and its name; both are forgotten after the test."""
    before = dict(NORMALISERS), set(sys.modules)
    file = tmp_path / "my_parts.py"
    file.write_text(PART.format(name="mine"))
    yield file, "mine"
    NORMALISERS.clear()
    NORMALISERS.update(before[0])
    for name in set(sys.modules) - before[1]:
        if name.startswith("regard_user_parts"):
            del sys.modules[name]


def test_file_registers_its_parts_and_runs_once(part, monkeypatch):
    file, name = part
    assert name not in NORMALISERS
    module = import_file(file)
    assert issubclass(NORMALISERS.choose(name), Normaliser)
    assert sys.modules[module.__name__] is module
    monkeypatch.chdir(file.parent)
    assert import_file("my_parts.py") is module  # the same file by another path
    assert module.RUNS == ["run"]


def test_files_of_one_name_are_two_modules(part, tmp_path):
    other = tmp_path / "other/my_parts.py"
    other.parent.mkdir()
    other.write_text(PART.format(name="yours"))
    import_files([part[0], other])
    assert {"mine", "yours"} <= set(NORMALISERS)
    assert NORMALISERS["mine"].__module__ != NORMALISERS["yours"].__module__


def test_load_imports_files(part):
    file, name = part
    assert str(regard.load("spelling", device="cpu", imports=[file])("cat")) == "K AE T"
    assert name in NORMALISERS


@pytest.mark.parametrize("words", [["predict", "spelling", "cat"], ["inspect", "spelling"]])
def test_commands_import_files(part, capsys, words):
    file, name = part
    command(capsys, *words, "--import", file)
    assert name in NORMALISERS


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("x = 1\nraise KeyError('lost')\n", 2, "KeyError: 'lost'"),
        ("def f(:\n", 1, "SyntaxError: invalid syntax"),
        ("import regard_has_no_such_module\n", 1, "ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError: division by zero"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, content, line, reason):
    file = tmp_path / "broken.py"
    file.write_text(content)
    with pytest.raises(RegardError) as refused:
        import_file(file)
    assert str(refused.value).startswith(f"cannot import {file}:{line}: {reason}")
    assert "\n" not in str(refused.value)
    file.write_text("fixed = True\n")
    assert import_file(file).fixed  # the failed attempt left no module behind


def test_registering_a_taken_name_is_reported(tmp_path):
    file = tmp_path / "taken.py"
    file.write_text(PART.format(name="softmax"))
    with pytest.raises(RegardError, match=r"taken\.py:\d+: normaliser 'softmax' is already"):
        import_file(file)


def test_missing_files_are_reported(tmp_path, capsys):
    folder, text = tmp_path / "folder", tmp_path / "parts.txt"
    folder.mkdir()
    text.write_text("")
    for path, reason in (
        (Path("none.py"), "no such file; give the path of a Python file"),
        (folder, "it is a folder; give the path of a Python file"),
        (text, "its name must end in .py; rename it"),
    ):
        wanted = f"cannot import {str(path)!r}: {reason}"
        with pytest.raises(RegardError) as refused:
            import_file(path)
        assert str(refused.value) == wanted
        _, error = command(capsys, "predict", "spelling", "cat", "--import", path, code=2)
        assert error == f"regard: {wanted}\n"
