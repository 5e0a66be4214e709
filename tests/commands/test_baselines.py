"""Baselines beside the model, and sources that were seen in training."""

import json
import shutil

import pytest

from regard.training.baselines import compare_with_baselines, nearest_targets, score_baselines
from tests.commands.small import arguments, pairs, regard, written

# Half of the targets equal their source, so copying is right for half of the words.
HALF = [(s, s if i % 2 else s[::-1] + "x") for i, (s, _) in enumerate(pairs(300, seed=5))]


def test_baselines_by_hand():
    references = {"ab": ["ab"], "cd": ["xy"], "ef": ["xy"], "gh": ["hg", "gh"]}
    training = [("abc", "xy"), ("zd", "xy"), ("gg", "gh"), ("q", "q")]
    scores = score_baselines("characters", references, frequent="xy", pairs=training)
    assert {name: found["sequence_accuracy"] for name, found in scores.items()} == {
        "copy_source": 50.0,
        "most_frequent_target": 50.0,
        "nearest_training_source": 75.0,  # ab → xy is wrong, cd → zd → xy, ef → abc → xy, gh → gg
    }
    assert nearest_targets(["abd", "gx"], training) == ["xy", "gh"]


@pytest.mark.parametrize(
    ("value", "interval", "warning"),
    [
        (60.0, (55.0, 65.0), "the model is not better than the baseline 'copy the source'"),
        (48.0, (40.0, 55.0), "the model is not clearly better than the baseline 'copy the source'"),
        (20.0, (15.0, 25.0), None),
    ],
)
def test_a_model_is_compared_with_the_best_baseline(value, interval, warning):
    name = "character_error_rate"
    scores = {"copy_source": {name: 50.0}, "most_frequent_target": {name: 90.0}}
    found = compare_with_baselines({name: value}, {name: interval}, scores)
    assert (found is None) if warning is None else found.startswith(warning)


def test_training_reports_baselines_and_a_model_that_is_worse(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv", HALF)
    one = ("--steps", "2", "--set", "train.evaluations=1")
    _, err = regard(capsys, *arguments(data, tmp_path / "run", *one))
    lines = dict(line.split(": ", 1) for line in err.splitlines() if ": " in line)
    baselines = lines["baselines (character error rate)"]
    for name in ("copy the source", "most frequent target", "nearest training source"):
        assert name in baselines
    assert lines["warning"].startswith(
        ("the model is not better than the baseline", "the held-out set has only")
    )
    assert "warning: the model is not better than the baseline 'copy the source'" in err
    assert "legend: character error rate: edits per 100 characters of the reference" in err
    assert "in parentheses: 95 % interval" in err


def test_a_small_held_out_set_is_a_warning(tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv", pairs(60))
    held_out = written(tmp_path / "held.tsv", pairs(100, seed=8)[:25])
    one = ("--steps", "1", "--set", "train.evaluations=1", "--held-out", held_out)
    _, err = regard(capsys, *arguments(data, tmp_path / "run", *one))
    assert (
        "warning: the held-out set has only 25 sources: a sequence error rate is known to ± 20 "
        "points (95 %, at worst); give more pairs, or a larger --held-out\n"
    ) in err
    page = (tmp_path / "run/report.html").read_text()
    assert '<p class="warning">Careful: the held-out set has only 25 sources' in page


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on pairs.tsv with its own held-out file."""
    home = tmp_path_factory.mktemp("run")
    written(home / "pairs.tsv", HALF[:250])
    written(home / "held.tsv", HALF[250:])
    return home


def test_evaluate_reports_seen_and_unseen_sources(run, tmp_path, capsys):
    one = ("--steps", "2", "--set", "train.evaluations=1", "--held-out", run / "held.tsv")
    regard(capsys, *arguments(run / "pairs.tsv", run / "out", *one))
    out, _ = regard(capsys, "evaluate", run / "out", run / "pairs.tsv")
    assert "Pairs.tsv is the file the model was trained on." in out
    assert (
        "250 of 250 sources occur in the training data; only unseen sources measure the quality on "
        "new data."
    ) in out
    assert "copy the source  most frequent target  nearest training source" in out
    mixed = written(tmp_path / "mixed.tsv", HALF[240:260])
    found = json.loads(regard(capsys, "evaluate", run / "out", mixed, "--json")[0])
    assert (found["seen"]["seen"]["sources"], found["seen"]["unseen"]["sources"]) == (10, 10)
    assert found["notes"][0].startswith("10 of 20 sources occur in the training data")
    assert set(found["baselines"]) == {
        "copy_source",
        "most_frequent_target",
        "nearest_training_source",
    }
    assert found["legend"][0].startswith("character error rate: edits per 100 characters")
    found = json.loads(regard(capsys, "evaluate", run / "out", run / "held.tsv", "--json")[0])
    assert found["notes"][0] == "held.tsv is the held-out file that selected the model"
    assert "seen" not in found["seen"]
    shutil.copytree(run / "out/bundle", tmp_path / "shared")
    found = json.loads(regard(capsys, "evaluate", tmp_path / "shared", mixed, "--json")[0])
    assert set(found["baselines"]) == {"copy_source", "most_frequent_target"}
