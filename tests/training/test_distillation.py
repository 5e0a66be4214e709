"""Distillation: cached teacher outputs, the student's data and tokenizers, and resuming."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.errors import RegardError
from regard.text import Pair
from regard.training import teacher_outputs
from regard.training.teacher_outputs import TeacherOutputs, distinct_pairs
from tests.commands.small import Quiet, left_by, pairs, strange_files, written
from tests.commands.small import regard as command

PAIRS = pairs(150, seed=1)
TEACHER = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "ffn_width": 16}
RUN = {"batch_tokens": 192, "evaluations": 1, "max_tokens": 8}
STUDENT = {**RUN, "steps": 6, "encoder_layers": 2, "decoder_layers": 1}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    """A run that has hardly learned anything, so that its outputs differ from the references."""
    out = tmp_path_factory.mktemp("teacher")
    regard.train(PAIRS, out, **TEACHER, **RUN, steps=40, display=Quiet())
    return out


@pytest.fixture(scope="module")
def student(tmp_path_factory, teacher) -> Path:
    """The run of an uninterrupted distillation."""
    out = tmp_path_factory.mktemp("student") / "run"
    regard.distill(teacher, PAIRS, out, **STUDENT, display=Quiet())
    return out


def rows(path: Path) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["source"], row["target"]) for row in found]


def test_a_stopped_cache_continues_with_whole_windows(tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_outputs, "WINDOW", 3)
    sources, calls = list("abcdefgh"), []

    def decode(lines: list[str]) -> list[str]:
        calls.append("".join(lines))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return [line * 2 for line in lines]

    with pytest.raises(KeyboardInterrupt):
        TeacherOutputs(tmp_path / "cache", {"teacher": "x"}).fill(sources, decode)
    with open(tmp_path / "cache/outputs.jsonl.partial", "a") as file:
        file.write('{"source": "g", "target": "gg"}\n{"sour')  # what a kill may leave
    reports: list[int] = []
    cache = TeacherOutputs(tmp_path / "cache", {"teacher": "x"})
    assert not cache.complete
    cache.fill(sources, decode, reports.append)
    assert calls == ["abc", "def", "gh", "gh"]
    assert reports == [6, 8]
    assert list(cache) == [Pair(letter, letter * 2) for letter in sources]
    assert cache.complete
    with pytest.raises(RegardError, match=r"made with another search; use the old one, --restart"):
        TeacherOutputs(tmp_path / "cache", {"teacher": "x", "search": 4})
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").touch()
    with pytest.raises(RegardError, match=r"letter.txt' belongs to no run and would be lost"):
        TeacherOutputs(tmp_path / "other", {"teacher": "x"})


def test_distinct_pairs_by_hand():
    original = [("a", "A"), ("b", "B"), ("a", "A")]
    outputs = [Pair("a", "A"), Pair("b", "C"), Pair("c", " ")]
    assert list(distinct_pairs(original, outputs)) == [("a", "A"), ("b", "B"), ("b", "C")]


def test_the_student_learns_the_outputs_of_the_teacher(teacher, student):
    pipeline = regard.load(teacher)
    learned, held_out = (
        dict(rows(student / f"teacher/{name}.jsonl")) for name in ("train", "held_out")
    )
    assert held_out.items() <= dict(PAIRS).items()
    outputs = {s: pipeline(s, beam=4).text for s, _ in PAIRS if s not in held_out}
    assert learned == {source: text for source, text in outputs.items() if text}
    assert len(learned) > 50
    assert learned.items() != {s: t for s, t in PAIRS if s in learned}.items()


def test_the_student_has_tokenizers_and_widths_of_the_teacher(teacher, student):
    ours, theirs = regard.load(student).bundle, regard.load(teacher).bundle
    assert ours.source.fingerprint == theirs.source.fingerprint
    assert ours.target.fingerprint == theirs.target.fingerprint
    sizes = ours.settings.model_dump()
    assert (sizes["width"], sizes["heads"], sizes["ffn_width"]) == (16, 2, 16)
    assert (sizes["encoder_layers"], sizes["decoder_layers"]) == (2, 1)


def test_the_card_compares_teacher_and_student(teacher, student):
    facts = regard.load(student).bundle.card["distillation"]
    held_out = rows(student / "teacher/held_out.jsonl")
    for name, folder in (("teacher", teacher), ("student", student)):
        report = regard.evaluate(folder, held_out)
        expected = {name: report[name] for name in report.metrics}
        assert facts[name]["metrics"] == pytest.approx(expected)
        assert facts[name]["sources_per_second"] > 0
    assert facts["held_out"] == len(held_out)
    text = (student / "bundle/README.md").read_text()
    assert "It is a student: it was trained on the outputs of another model" in text


def test_original_pairs_can_be_added(teacher, tmp_path):
    regard.distill(teacher, PAIRS, tmp_path / "run", original=True, **STUDENT, display=Quiet())
    found = rows(tmp_path / "run/teacher/train.jsonl")
    outputs = rows(tmp_path / "run/teacher/outputs.jsonl")
    sources = dict(outputs)
    assert found[: len(sources)] == [pair for pair in PAIRS if pair[0] in sources]
    nonempty = {pair for pair in outputs if pair[1]}
    assert set(found) == {*nonempty, *found[: len(sources)]}
    assert len(found) == len(set(found)) > len(sources)


SCRIPT = """
import json, os, signal, sys
import regard
from regard.training import teacher_outputs
from tests.commands.small import Quiet
teacher, data, out, settings, kill = sys.argv[1:]
teacher_outputs.WINDOW = 32
fill = teacher_outputs.TeacherOutputs.fill

def killed(self, sources, decode, report):
    calls = []
    def watched(lines):
        calls.append(lines)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode(lines)
    fill(self, sources, watched, report)

at = lambda step: os.kill(os.getpid(), signal.SIGKILL)
if kill == "decoding":
    teacher_outputs.TeacherOutputs.fill = killed
view = Quiet(at if kill == "training" else None)
regard.distill(teacher, data, out, **json.loads(settings), display=view)
"""


def run_script(teacher: Path, data: Path, out: Path, kill: str) -> int:
    """Distill in a process that kills itself at a moment; returns its exit code."""
    settings = json.dumps({**STUDENT, "evaluations": 2, "checkpoint_seconds": 0})
    words = [sys.executable, "-c", SCRIPT, *map(str, (teacher, data, out)), settings, kill]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-2000:]
    return done.returncode


def test_kills_change_no_bit(teacher, tmp_path):
    data = written(tmp_path / "pairs.tsv", PAIRS)
    assert run_script(teacher, data, tmp_path / "whole", "") == 0
    for kill in ("decoding", "training"):
        assert run_script(teacher, data, tmp_path / "run", kill) == -signal.SIGKILL
    assert (tmp_path / "run/teacher/outputs.jsonl").exists()
    assert run_script(teacher, data, tmp_path / "run", "") == 0
    for name in ("outputs", "train", "held_out"):
        whole, killed = (
            (tmp_path / run / f"teacher/{name}.jsonl").read_bytes() for run in ("whole", "run")
        )
        assert killed == whole
    assert left_by(tmp_path / "run") == left_by(tmp_path / "whole")
    assert strange_files(tmp_path / "run") == []


def test_the_command_distills_an_ensemble_and_restarts(teacher, tmp_path, capsys):
    data, out = written(tmp_path / "pairs.tsv", PAIRS), tmp_path / "run"
    words = ["distill", teacher, data, "--ensemble", teacher, "--out", out, "--steps", "2"]
    words += ["--set", "train.batch_tokens=192", "--set", "text.max_tokens=8", "--size", "tiny"]
    printed, progress = command(capsys, *words)
    assert "teacher: 0 of " in progress
    assert printed.split()[:2] == ["teacher", "student"]
    assert "sources/s" in printed
    again, progress = command(capsys, *words)
    assert "teacher: " not in progress
    assert again == printed
    _, error = command(capsys, *words, "--beam", "2", code=2)
    assert error.startswith(f"regard: the outputs in '{out}/teacher' were made with another search")
    _, progress = command(capsys, *words, "--beam", "2", "--restart")
    assert "teacher: 0 of " in progress


def test_a_teacher_without_outputs_is_named(tmp_path, teacher, monkeypatch):
    monkeypatch.setattr(TeacherOutputs, "__iter__", lambda self: iter([Pair("ab", "")]))
    with pytest.raises(RegardError) as refused:
        regard.distill(teacher, PAIRS, tmp_path / "run", **STUDENT, display=Quiet())
    expected = f"all outputs of the teacher are empty; train {teacher / 'bundle'} longer"
    assert str(refused.value) == expected
