"""The Python API: training from any container of pairs, callbacks, metrics and resume."""

import subprocess
import sys
import textwrap

import pytest

import regard
from regard.errors import RegardError
from regard.training.pairs import as_corpus
from tests.commands.small import Quiet, left_by, pairs, tensors, written

PAIRS = pairs(120, seed=4)
TINY = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 16}
SETTINGS = {**TINY, "steps": 6, "batch_tokens": 192, "evaluations": 2, "max_tokens": 8}


def train(data, out, **more):
    display = more.pop("display", None) or Quiet()
    return regard.train(data, out, **{**SETTINGS, **more}, display=display)


def test_every_container_gives_the_same_model(tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"id": range(len(PAIRS)), "source": [s for s, _ in PAIRS]}
    columns["target"] = [t for _, t in PAIRS]
    containers = {
        "list": PAIRS,
        "iterator": iter(PAIRS),
        "pandas": pandas.DataFrame(columns),
        "polars": polars.DataFrame(columns),
        "mapping": {name: columns[name] for name in ("source", "target")},
        "rows": [{"target": t, "source": s} for s, t in PAIRS],
    }
    for name, container in containers.items():
        pipeline = train(container, tmp_path / name)
        assert isinstance(pipeline, regard.Pipeline)
    first, *others = [
        tensors(tmp_path / name / "bundle/weights.safetensors") for name in containers
    ]
    assert all(other == first for other in others)
    prints = {as_corpus(pandas.DataFrame(columns)).fingerprint()["pairs"] for _ in range(2)}
    assert prints == {as_corpus(PAIRS).fingerprint()["pairs"]}


def test_a_hugging_face_dataset_is_read():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"de": ["a", "b"], "en": ["x", "y"]})
    assert list(as_corpus(table, source="de", target="en")) == [("a", "x"), ("b", "y")]


def test_the_command_and_the_function_agree(tmp_path):
    from tests.commands.small import arguments, start

    data = written(tmp_path / "pairs.tsv", PAIRS)
    more = ("--steps", "6", "--set", "train.evaluations=2", "--set", "model.dropout=0.1")
    process = start(arguments(data, tmp_path / "command", *more))
    _, printed = process.communicate(timeout=900)
    assert process.returncode == 0, printed
    train(data, tmp_path / "function", size="tiny", dropout=0.1)
    assert left_by(tmp_path / "function") == left_by(tmp_path / "command")
    names = [
        {path.relative_to(out).as_posix() for path in out.rglob("*")}
        for out in (tmp_path / "command", tmp_path / "function")
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("data", "printed"),
    [
        (
            [("a", "b"), ("a", None)],
            "row 2: the target must be a str; got None; convert or drop it",
        ),
        (
            [("a", "b", "c")],
            "row 1 must be a (source, target) pair; got ('a', 'b', 'c')",
        ),
        ({"x": ["a"], "y": ["b"], "z": ["c"]}, "the table has the columns 'x', 'y', 'z'; give "),
        (3, "pairs must be files, a list of (source, target) pairs, a DataFrame or a Dataset; got"),
    ],
)
def test_unusable_pairs_are_refused(tmp_path, data, printed):
    with pytest.raises(RegardError) as refused:
        train(data, tmp_path / "run")
    assert str(refused.value).startswith(printed)
    assert not (tmp_path / "run").exists()


def test_unknown_settings_are_refused(tmp_path):
    with pytest.raises(RegardError, match="unknown setting 'widht'; did you mean 'width'"):
        train(PAIRS, tmp_path / "run", widht=3)


class Recorder(regard.Callback):
    """Keeps the events it receives."""

    def __init__(self):
        self.events = []

    def on_start(self, folder, settings, total):
        self.events.append(("start", folder.name, settings["train"]["steps"], total))

    def on_step(self, status):
        self.events.append(("step", status.step))

    def on_evaluation(self, step, evaluation, *, best):
        self.events.append(("evaluation", step, sorted(evaluation.metrics), best))

    def on_checkpoint(self, step, folder):
        assert (folder / next(folder.iterdir()).name).exists()
        self.events.append(("checkpoint", step))

    def on_end(self, card):
        self.events.append(("end", card["of"]))


def test_callbacks_receive_events_beside_the_display(tmp_path):
    seen, view = Recorder(), Quiet()
    train(PAIRS, tmp_path / "run", callbacks=[seen], display=view)
    assert len(view.losses) == 6
    assert view.ended["bundle"] == str(tmp_path / "run/bundle")
    assert [event[1] for event in seen.events if event[0] == "step"] == [1, 2, 3, 4, 5, 6]
    assert [event[1] for event in seen.events if event[0] == "evaluation"] == [3, 6]
    assert [event[1] for event in seen.events if event[0] == "checkpoint"] == [0, 3, 6]
    assert seen.events[1] == ("start", "run", 6, 6)
    assert seen.events[-1] == ("end", 6)
    alone = train(PAIRS, tmp_path / "alone")
    assert left_by(tmp_path / "alone") == left_by(tmp_path / "run")
    assert alone.bundle.card["metrics"] == regard.load(tmp_path / "run").bundle.card["metrics"]


def test_a_custom_metric_selects_the_model(tmp_path):
    values = iter([3.0, 1.0, 2.0])
    metric = regard.Metric(lambda printed, right: next(values), higher_is_better=False)
    pipeline = train(
        PAIRS, tmp_path / "run", metrics={"mine": metric}, select="mine", evaluations=3
    )
    assert (pipeline.bundle.card["steps"], pipeline.bundle.card["metrics"]["mine"]) == (4, 1.0)
    with pytest.raises(RegardError, match="there is no metric other; choose from character_error"):
        train(PAIRS, tmp_path / "other", select="other")


def test_patience_counts_evaluations_of_the_selected_metric(tmp_path):
    view, values = Quiet(), iter([5.0, 4.0, 4.0, 9.0])
    train(
        PAIRS,
        tmp_path / "run",
        metrics={"mine": lambda printed, right: next(values)},
        select="mine",
        evaluations=6,
        patience=2,
        display=view,
    )
    assert view.ended["stopped"] == "no improvement in 2 evaluations"
    assert len(view.losses) == 3


def test_evaluate_returns_metrics_with_intervals(tmp_path):
    pipeline = train(PAIRS, tmp_path / "run")
    report = regard.evaluate(pipeline, PAIRS[:30])
    wrong = sum(str(pipeline(source)) != target for source, target in PAIRS[:30])
    assert report["sequence_error_rate"] == pytest.approx(100 * wrong / 30)
    one = report.metrics["character_error_rate"]
    assert one["low"] <= one["value"] <= one["high"]
    assert regard.evaluate(tmp_path / "run", PAIRS[:30], beam=1).sources == 30


KILLED = """
    import os, signal, sys
    import pandas, regard
    frame = pandas.read_csv("words.csv")
    class Kill(regard.Callback):
        def on_step(self, status):
            if status.step == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
    regard.train(frame, sys.argv[1], steps=6, size="tiny", callbacks=[Kill()], evaluations=2)
"""


def test_a_killed_run_from_a_frame_resumes_bit_identically(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(PAIRS, columns=["word", "backwards"])
    frame.to_csv(tmp_path / "words.csv", index=False)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(KILLED))
    assert len([line for line in script.read_text().splitlines() if line]) <= 10

    def start(out, step):
        command = [sys.executable, str(script), out, str(step)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)

    assert start("parts", 4).returncode == -9
    again = start("parts", 0)
    assert again.returncode == 0, again.stderr
    assert "resumed: from step 3" in again.stderr
    whole = start("whole", 0)
    assert whole.returncode == 0, whole.stderr
    assert left_by(tmp_path / "parts") == left_by(tmp_path / "whole")
