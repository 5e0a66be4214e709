"""Damaged files in the data folder of a run: detected on resume, and made again where possible."""

import json
import signal
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.training.loop import Interrupted
from regard.training.run import run
from regard.training.teacher_outputs import TeacherOutputs
from tests.commands.small import Quiet, job, left_by, strange_files
from tests.training.test_resume import signal_at


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    """A finished run of eight steps that nobody stopped."""
    out = tmp_path_factory.mktemp("whole")
    run(job(data, out), Quiet())
    return out


@pytest.fixture
def stopped(tmp_path, data):
    """The folder of a run that was stopped after six steps."""
    with pytest.raises(Interrupted):
        run(job(data, tmp_path / "run"), Quiet(signal_at(6, signal.SIGINT)))
    return tmp_path / "run"


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    stored = bytearray(path.read_bytes())
    stored[place] ^= 1
    path.write_bytes(stored)


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("ids/source.ids", "source.ids is damaged at byte 0 or after it; tokenizing again"),
        ("ids/target.ids", "target.ids is damaged at byte 0 or after it; tokenizing again"),
        ("ids/source.offsets", "source.offsets is damaged at byte 0 or after it; tokenizing again"),
        ("ids/ids.json", "ids.json is damaged; tokenizing again"),
        (
            "training_sources.safetensors",
            "training_sources.safetensors' is damaged; reading the training sources again",
        ),
    ],
)
def test_a_flipped_bit_of_the_data_changes_no_weight(data, whole, stopped, name, printed):
    before = (stopped / "data" / name).read_bytes()
    flip(stopped / "data" / name, -40 if name.endswith("json") else -2)
    view = Quiet()
    run(job(data, stopped), view)
    assert [line for line in view.lines if line.endswith(printed)]
    if "ids" in name:  # the order of metadata in a safetensors file is arbitrary
        assert (stopped / "data" / name).read_bytes() == before
    assert left_by(stopped) == left_by(whole)
    assert strange_files(stopped) == []
    again = Quiet()
    run(job(data, stopped), again)
    assert not [line for line in again.lines if "damaged" in line]


@pytest.mark.parametrize("name", ["data/prepared.json", "settings.json"])
def test_a_flipped_bit_of_the_state_is_an_error(data, whole, stopped, name):
    text = (stopped / name).read_text()
    digit = next(i for i, character in enumerate(text) if character in "246")
    flip(stopped / name, len(text[:digit].encode()))
    json.loads((stopped / name).read_text())  # still valid JSON
    with pytest.raises(
        RegardError, match=rf"'.*{name}' is damaged or .*; start over with --restart, or use "
    ):
        run(job(data, stopped), Quiet())


def test_restart_replaces_damaged_state(data, whole, stopped):
    flip(stopped / "settings.json", -4)
    made = job(data, stopped)
    run(type(made)(**{**vars(made), "restart": True}), Quiet())
    assert left_by(stopped) == left_by(whole)


def test_a_run_without_checksums_resumes(data, whole, stopped):
    for name in ("data/prepared.json", "data/ids/ids.json", "settings.json"):
        values = json.loads((stopped / name).read_text())
        for added in ("crc32", "checksums", "training_sources"):
            values.pop(added, None)
        (stopped / name).write_text(json.dumps(values))
    view = Quiet()
    run(job(data, stopped), view)
    assert "resumed: from step 6" in view.lines
    assert not [line for line in view.lines if "damaged" in line]
    assert left_by(stopped) == left_by(whole)


@pytest.mark.parametrize("place", [0, 200, -30])
def test_a_flipped_bit_of_a_tokenizer_is_an_error(data, stopped, place):
    flip(stopped / "data/source.tokenizer.json", place)
    with pytest.raises(RegardError, match=r"tokenizer.*; start over with --restart, or use "):
        run(job(data, stopped), Quiet())


def test_damaged_teacher_outputs_are_an_error(tmp_path):
    cache = TeacherOutputs(tmp_path / "cache", {"teacher": "x"})
    cache.fill("abc", lambda lines: [line * 2 for line in lines])
    assert list(cache) == [("a", "aa"), ("b", "bb"), ("c", "cc")]
    flip(tmp_path / "cache/outputs.jsonl", -2)
    with pytest.raises(
        RegardError, match=r"outputs.jsonl' is damaged at line 3; start over with --restart$"
    ):
        list(cache)
