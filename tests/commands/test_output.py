"""--output of `regard predict` and `evaluate`: complete, in order, nothing lost or repeated.

REGARD_KILLS=20 pytest tests/commands/test_output.py     kills twenty times instead of twice
"""

import builtins
import itertools
import json
import os
import random
import signal
import threading
import time

import pytest

from regard import quality
from regard.commands import evaluate as evaluating
from regard.commands.output_files import ResumableFile
from tests.commands.small import pairs, regard, start, written

KILLS = int(os.environ.get("REGARD_KILLS", "2"))


def left(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def finished(process) -> str:
    _, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return err


def test_kills_lose_and_repeat_nothing(bundle, tmp_path):
    draw = random.Random(os.environ.get("REGARD_SEED", 1))
    found = [word for word, _ in pairs(1_300, seed=5)] * (7 * KILLS - 6)
    draw.shuffle(found)
    data, out, progress = tmp_path / "many.txt", tmp_path / "out.txt", tmp_path / "out.txt.progress"
    data.write_text("".join(f"{word}\n" for word in found))
    words = [
        "predict",
        str(bundle),
        "--input",
        str(data),
        "--n-best",
        "4",
        "--beam",
        "8",
        "--output",
    ]
    for _ in range(KILLS):
        before = json.loads(progress.read_text())["lines"] if progress.exists() else -1
        process, until = start([*words, str(out)]), time.monotonic() + 900
        while time.monotonic() < until and process.poll() is None:
            if progress.exists() and json.loads(progress.read_text())["lines"] > max(0, before):
                break
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        process.kill()
        process.communicate(timeout=900)
        assert process.returncode == -signal.SIGKILL, (
            "the job ended before it was killed; make it longer"
        )
        assert not out.exists()
    done = json.loads(progress.read_text())["lines"]
    assert 0 < done < len(found)
    assert (
        finished(start([*words, str(out)])).splitlines()[0]
        == f"{out}: resuming after {done:,} lines"
    )
    finished(start([*words, str(tmp_path / "whole.txt")]))
    assert out.read_bytes() == (tmp_path / "whole.txt").read_bytes()
    numbers = [int(line.split("\t")[0]) for line in out.read_text().splitlines()]
    assert [number for number, _ in itertools.groupby(numbers)] == list(range(1, len(found) + 1))
    assert left(tmp_path) == {"many.txt", "out.txt", "whole.txt"}


def test_predict_writes_to_a_pipe(bundle, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        regard(capsys, "predict", bundle, "abc", "--output", pipe)
        assert os.read(reader, 100).endswith(b"\n")
        assert left(tmp_path) == {"pipe"}
    finally:
        os.close(reader)


def test_interrupt_says_how_to_resume(bundle, tmp_path, capsys, monkeypatch):
    def stop(self, window, text, rejected):
        self.done += 2
        raise KeyboardInterrupt

    monkeypatch.setattr(ResumableFile, "write", stop)
    _, err = regard(capsys, "predict", bundle, "abc", "dab", "--output", tmp_path / "out", code=130)
    line = f"{tmp_path / 'out'}: interrupted after 2 lines; run the same command again to resume"
    assert err.splitlines()[0] == line
    assert "Traceback" not in err


def test_failed_job_keeps_its_answers(bundle, tmp_path, capsys):
    data, out = tmp_path / "lines", tmp_path / "out"
    data.write_bytes(b"abc\n" * 64 + b"\xff\n")
    regard(capsys, "predict", bundle, "--input", data, "--output", out, code=2)
    data.write_bytes(b"abc\n" * 70)
    _, err = regard(capsys, "predict", bundle, "--input", data, "--output", out)
    assert err == f"{out}: resuming after 64 lines\n"
    assert len(out.read_text().splitlines()) == 70


def kept_files(path) -> tuple[bytes, bytes]:
    return tuple(path.with_name(f"out.{role}").read_bytes() for role in ("partial", "progress"))


def test_another_input_is_refused_every_time(bundle, tmp_path, capsys):
    words = [word for word, _ in pairs(80, seed=3)]
    right, wrong, out = tmp_path / "right", tmp_path / "wrong", tmp_path / "out"
    right.write_bytes("".join(f"{word}\n" for word in words[:64]).encode() + b"\xff\n")
    wrong.write_text("".join(f"{word}\n" for word in reversed(words)))
    regard(
        capsys, "predict", bundle, "--input", right, "--output", out, code=2
    )  # stops after 64 answers
    before = kept_files(out)
    for _ in range(2):
        regard(capsys, "predict", bundle, "--input", wrong, "--output", out, code=2)
        assert kept_files(out) == before
    right.write_text("".join(f"{word}\n" for word in words))
    regard(capsys, "predict", bundle, "--input", right, "--output", out)
    regard(capsys, "predict", bundle, "--input", right, "--output", tmp_path / "whole")
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def test_evaluate_checks_its_output_first(bundle, tmp_path, capsys, monkeypatch):
    def never(*_):
        raise AssertionError("a question was answered")

    monkeypatch.setattr(quality, "predict_all", never)
    data, nowhere = written(tmp_path / "pairs.tsv"), tmp_path / "no/out"
    for out, why in (
        (nowhere, "No such file or directory"),
        (tmp_path, "it is a folder; name a file in it"),
    ):
        printed, err = regard(capsys, "evaluate", bundle, data, "--output", out, code=2)
        assert (printed, err) == ("", f"regard: cannot write '{out}': {why}\n")
    assert left(tmp_path) == {"pairs.tsv"}


def test_failed_evaluation_leaves_no_partial_file(bundle, tmp_path, capsys):
    data, out = tmp_path / "pairs.tsv", tmp_path / "out"
    data.write_text("a\tb\nlonely\n")
    out.write_text("as before")
    (tmp_path / "out.partial").write_text("of a prediction")
    regard(capsys, "evaluate", bundle, data, "--output", out, code=2)
    assert out.read_text() == "as before"
    assert (tmp_path / "out.partial").read_text() == "of a prediction"
    assert left(tmp_path) == {"pairs.tsv", "out", "out.partial"}


def test_metrics_are_printed_when_the_disk_is_full(bundle, tmp_path, capsys, monkeypatch):
    full, real = tmp_path / ".out.partial", builtins.open

    def opened(path, *words, **options):
        return real("/dev/full" if path == full else path, *words, **options)

    monkeypatch.setattr(evaluating, "open", opened, raising=False)
    data = written(tmp_path / "pairs.tsv", pairs(5))
    printed, err = regard(capsys, "evaluate", bundle, data, "--output", tmp_path / "out", code=2)
    assert printed.startswith("5 sources with 5 references, ")
    assert err == f"regard: cannot write '{tmp_path / 'out'}': No space left on device\n"
    assert left(tmp_path) == {"pairs.tsv"}


@pytest.fixture
def gold(tmp_path):
    return written(tmp_path / "test.tsv", pairs(40, seed=9))


def test_evaluate_writes_to_a_pipe(bundle, gold, tmp_path, capsys):
    pipe, seen = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: seen.append(pipe.read_text()), daemon=True)
    reader.start()
    regard(capsys, "evaluate", bundle, gold, "--output", pipe)
    reader.join(20)
    assert pipe.is_fifo()
    assert len(seen[0].splitlines()) == 41


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_input_is_not_overwritten(bundle, gold, tmp_path, capsys, command):
    before, link = gold.read_text(), tmp_path / "link.tsv"
    link.symlink_to(gold)
    words = {"evaluate": [gold], "predict": ["--input", gold]}[command]
    for output in (gold, link):
        _, err = regard(capsys, command, bundle, *words, "--output", output, code=2)
        what = f"--output {str(output)!r} is also an input and would be overwritten"
        assert err == f"regard: {what}; name another file\n"
    assert gold.read_text() == before


@pytest.mark.parametrize(
    ("command", "beside"),
    [("predict", "{}.partial"), ("predict", "{}.progress"), ("evaluate", ".{}.partial")],
)
def test_input_beside_the_output_is_not_overwritten(
    bundle, gold, tmp_path, capsys, command, beside
):
    output = tmp_path / "out.tsv"
    taken = gold.rename(tmp_path / beside.format("out.tsv"))
    before = taken.read_text()
    words = {"evaluate": [taken], "predict": ["--input", taken, "--restart"]}[command]
    _, err = regard(capsys, command, bundle, *words, "--output", output, code=2)
    what = f"--output {str(output)!r} would overwrite the input {str(taken)!r}"
    assert err == f"regard: {what}; name another file\n"
    assert taken.read_text() == before
    assert left(tmp_path) == {taken.name}


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_symbolic_link_stays_a_link(bundle, gold, tmp_path, capsys, command):
    real, link = tmp_path / "real.tsv", tmp_path / "link.tsv"
    real.write_text("old\n")
    link.symlink_to(real)
    words = {"evaluate": [gold], "predict": ["--input", gold, "--column", "1"]}[command]
    regard(capsys, command, bundle, *words, "--output", link)
    assert link.is_symlink()
    assert "old" not in real.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"test.tsv", "real.tsv", "link.tsv"}


@pytest.mark.parametrize("words", [["evaluate", "test.tsv"], ["predict", "ab"]])
def test_current_folder_is_not_a_file(bundle, gold, tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    _, err = regard(capsys, words[0], bundle, words[1], "--output", ".", code=2)
    assert err.endswith("it is a folder; name a file in it\n")
