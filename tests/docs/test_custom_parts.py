"""The page on user-defined parts: its code is executed exactly as it is printed."""

import json
import math
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

import regard
from regard.attention import NORMALISERS
from regard.errors import RegardError
from tests.commands.small import regard as command
from tests.commands.small import written
from tests.contracts import model_cases, test_engines, test_models, test_traces

PAGE = (Path(__file__).parent.parent.parent / "docs/custom_parts.md").read_text()
PART, EXAMPLE = re.findall(r'```python title="\w+\.py"\n(.*?)```', PAGE, re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
NAME = "softmax-one"


@pytest.fixture
def folder(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A folder with my_parts.py and pairs.tsv; the part is unregistered after the test."""
    (tmp_path / "my_parts.py").write_text(PART)
    (tmp_path / "example.py").write_text(EXAMPLE)
    written(tmp_path / "pairs.tsv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget_part()


def forget_part() -> None:
    """As in a process that has not imported the file."""
    NORMALISERS.pop(NAME, None)
    for module in [name for name in sys.modules if "my_parts" in name]:
        del sys.modules[module]


def lines_of(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.strip()]


def test_part_and_example_have_at_most_twenty_lines():
    assert len(lines_of(PART)) + len(lines_of(EXAMPLE)) <= 20


def test_the_commands_train_and_predict(folder, capsys):
    train, predict = COMMANDS.splitlines()
    for line in (train, predict):
        words = shlex.split(line)
        assert words[0] == "regard"
        out, _ = command(capsys, *words[1:])
        forget_part()
    assert len(out.splitlines()) == 1  # the prediction
    settings = json.loads((folder / "runs/pairs/bundle/config.json").read_text())
    assert settings["model"]["normaliser"] == NAME


def test_the_example_trains_searches_and_explains(folder, capsys):
    variables = runpy.run_path("example.py")
    logp, *explanation = capsys.readouterr().out.splitlines()
    pipeline, trace = variables["pipeline"], variables["trace"]
    answer = pipeline("abcd")
    assert float(logp) == answer.logp
    assert answer.logp == pytest.approx(pipeline.score("abcd", answer.text).logp, abs=1e-4)
    assert "exp(sᵢ) / (1 + Σⱼ exp(sⱼ))" in explanation
    explained = trace.explain("dec.0.cross.weights", (0, 0, 2))
    exps = [math.exp(score) for score in trace["dec.0.cross.masked"][0, 0].double().tolist()]
    assert explained.result == pytest.approx(exps[2] / (1 + sum(exps)), rel=1e-9)
    assert explained.value == float(trace["dec.0.cross.weights"][0, 0, 2])
    assert explained.difference < 1e-6
    assert trace.check < 1e-4


def test_loading_without_the_file_names_the_part_and_the_fix(folder, capsys):
    runpy.run_path("example.py")
    forget_part()
    with pytest.raises(RegardError) as error:
        regard.load("runs/python/bundle")
    shown = re.findall(r"```text\n(cannot build .*?)\n```", PAGE, re.DOTALL)
    assert [str(error.value)] == [message.replace("\n", " ") for message in shown]
    _, err = command(capsys, "predict", "runs/python/bundle", "abcd", code=2)
    assert f"unknown normaliser '{NAME}'" in err
    assert "--import FILE" in err
    assert regard.load("runs/python/bundle", imports=["my_parts.py"])("abcd").ids


def test_the_number_of_contract_cases_is_right():
    count = 0
    for module in (test_models, test_engines, test_traces):
        for name, test in vars(module).items():
            if name.startswith("test_"):
                marks = [mark for mark in getattr(test, "pytestmark", []) if "param" in mark.name]
                count += math.prod(len(mark.args[1]) for mark in marks)
    models = len(model_cases.CASES) + len(model_cases.PAIRS)
    assert f"{count:,} cases with {models} models" in PAGE.replace("\n", " ")
