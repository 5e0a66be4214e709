"""`regard train`, killed at random moments, resumes with the same command and the same bits.

REGARD_KILLS=20 pytest tests/commands/test_kill.py     kills twenty times instead of three
"""

import os
import random
import signal
import time

import pytest

from regard.training.run_log import read_log
from tests.commands.small import arguments, left_by, start, strange_files, written

KILLS = int(os.environ.get("REGARD_KILLS", "3"))
STEPS = 30 + 10 * KILLS
MORE = (
    "--steps",
    str(STEPS),
    "--set",
    "train.checkpoint_seconds=0.05",
    "--set",
    "train.weight_average=ema",
)


def finished(process) -> str:
    _, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return err


def wait_for(process, step: int, journal, patience: float = 900.0) -> None:
    """Wait until the run has reported an evaluation at or after a step."""
    until = time.monotonic() + patience
    while time.monotonic() < until and process.poll() is None:
        if journal.exists() and any(
            e["event"] == "evaluated" and e["step"] >= step for e in read_log(journal)
        ):
            return
        time.sleep(0.02)
    pytest.fail(f"step {step} was not reached: {process.communicate(timeout=5)}")


def begun(out) -> int:
    """How often a run has started to work: first on its data, then on its steps."""
    if not (out / "log.jsonl").exists():
        return int((out / "data").exists())
    return 1 + sum(
        event["event"] in ("started", "resumed") for event in read_log(out / "log.jsonl")
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the pairs, and an uninterrupted run."""
    home = tmp_path_factory.mktemp("kill")
    data = written(home / "pairs.tsv")
    finished(start(arguments(data, home / "whole", *MORE)))
    return home


def test_kills_change_no_bit_and_leave_no_files(place):
    draw, out = random.Random(os.environ.get("REGARD_SEED", 1)), place / "run"
    words = arguments(place / "pairs.tsv", out, *MORE)
    for _ in range(KILLS):
        process, before = start(words), begun(out)
        until = time.monotonic() + 900
        while (
            begun(out) == before and time.monotonic() < until
        ):  # python and torch are loading until then
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.6))
        process.kill()
        process.communicate(timeout=900)
        assert process.returncode == -signal.SIGKILL, (
            "the run ended before it was killed; make it longer"
        )
    finished(start(words))
    assert left_by(out) == left_by(place / "whole")
    assert strange_files(out) == []
    assert {path.name for path in out.iterdir()} == {
        "bundle",
        "checkpoints",
        "data",
        "film",
        "held_out.jsonl",
        "log.jsonl",
        "report.html",
        "settings.json",
    }
    evaluations = [
        (e["step"], str(e["metrics"]))
        for e in read_log(out / "log.jsonl")
        if e["event"] == "evaluated"
    ]
    whole = [
        (e["step"], str(e["metrics"]))
        for e in read_log(place / "whole/log.jsonl")
        if e["event"] == "evaluated"
    ]
    assert (
        sorted(set(evaluations)) == whole
    )  # an evaluation just before a kill is repeated with the same result


def test_signal_saves_and_exits_with_its_code(place):
    out = place / "signals"
    words = arguments(place / "pairs.tsv", out, *MORE)
    for number, least in ((signal.SIGINT, STEPS // 8), (signal.SIGTERM, STEPS // 2)):
        process = start(words)
        wait_for(process, least, out / "log.jsonl")
        process.send_signal(number)
        _, err = process.communicate(timeout=900)
        assert process.returncode == 128 + number
        (line,) = [line for line in err.splitlines() if line.startswith("regard: ")]
        step = [
            event["step"]
            for event in read_log(out / "log.jsonl")
            if event["event"] == "interrupted"
        ][-1]
        assert (
            line
            == f"regard: {number.name}: saved at step {step}; run the same command again to resume"
        )
        assert "Traceback" not in err
        assert least <= step < STEPS
    assert f"resumed: from step {step}" in finished(start(words))
    assert left_by(out) == left_by(place / "whole")
