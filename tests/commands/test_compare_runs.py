"""`regard compare`, `regard train --seeds`, `regard sweep` and `--help-settings`."""

import json

import numpy as np
import pytest

import regard
from regard.commands.compare import differing_settings
from regard.commands.sweep import flatten, grid, group, read_sweep
from regard.errors import RegardError
from regard.training.bootstrap import paired_difference
from tests.commands.small import TINY, arguments, pairs, written
from tests.commands.small import regard as command

DATA = pairs(300, seed=6)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data") / "pairs.tsv", DATA)


def test_paired_bootstrap_by_hand():
    right = [["aa"]] * 40
    worse, better = ["ab"] * 30 + ["aa"] * 10, ["aa"] * 40
    difference, p = paired_difference("characters", worse, better, right)
    assert (difference, p) == (-37.5, 0.0)  # 30 of 80 characters
    assert paired_difference("characters", worse, worse, right) == (0.0, 1.0)
    draw = np.random.default_rng(1)
    noise = [["aa", "ab"][i] for i in draw.integers(2, size=400)]
    other = [["aa", "ab"][i] for i in draw.integers(2, size=400)]
    assert paired_difference("characters", noise, other, [["aa"]] * 400)[1] > 0.05


def test_differing_settings():
    rows = differing_settings([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1}])
    assert rows == {"b": ["2", "3", ""]}


def test_seeds_compare_and_ensemble(tmp_path, data, capsys):
    more = ("--steps", "3", "--set", "train.evaluations=1", "--seeds", "2")
    more += ("--set", "text.target_order=forward")
    out, _ = command(capsys, *arguments(data, tmp_path / "run", *more))
    lines = out.splitlines()
    assert lines[0].split() == [
        "character",
        "error",
        "rate",
        "sequence",
        "error",
        "rate",
        "sequence",
        "accuracy",
    ]
    rows = {line.split("  ")[1].strip(): line for line in lines[1:5]}
    assert list(rows) == ["seed 1", "seed 2", "mean ± spread", "ensemble"]
    rates = [float(rows[name].split()[2]) for name in ("seed 1", "seed 2")]
    mean, _, std = rows["mean ± spread"].split()[3:6]
    assert float(mean) == pytest.approx(np.mean(rates), abs=0.01)
    assert float(std) == pytest.approx(np.std(rates, ddof=1), abs=0.01)
    ensemble = regard.load(tmp_path / "run")
    members = [regard.load(tmp_path / f"run/seed-{seed}") for seed in (1, 2)]
    score = ensemble.score("ab", "ba").logps[0]
    each = [np.exp(member.score("ab", "ba").logps[0]) for member in members]
    assert np.exp(score) == pytest.approx(np.mean(each), rel=1e-4)
    first, second = tmp_path / "run/seed-1", tmp_path / "run/seed-2"
    out, _ = command(capsys, "compare", first, second)
    assert "Settings that differ" in out
    assert "train.seed" in out
    assert "paired-bootstrap" in out
    one, two = json.loads(command(capsys, "compare", first, second, "--json")[0])
    assert one["p"] is None
    assert 0 <= two["p"] <= 1
    assert two["difference"] == pytest.approx(
        two["metrics"]["character_error_rate"] - one["metrics"]["character_error_rate"]
    )
    _, err = command(capsys, "compare", first, code=2)
    assert err == "regard: compare needs at least two runs; got 1\n"


def test_settings_reference_is_shown(capsys):
    out, _ = command(capsys, "train", "--help-settings")
    assert "  train.patience\n      Early stopping: end after this many evaluations" in out
    assert "  text.split_seed = 1\n" in out
    assert "  model.width = 256\n" in out


def test_grid_and_groups_by_hand():
    space = flatten({"model": {"width": [8, 16]}, "train": {"steps": [1]}})
    assert list(grid(space)) == [
        {"model.width": 8, "train.steps": 1},
        {"model.width": 16, "train.steps": 1},
    ]
    assert group({"model.width": 8, "train.steps": 1}) == {
        "model": {"width": 8},
        "text": {},
        "train": {"steps": 1},
    }


def test_random_trials_are_reproducible(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(
        'data = "pairs.tsv"\ntrials = 5\n[random]\nmodel.dropout = [0.0, 0.1]\n'
        "train.learning_rate = {low = 1e-4, high = 1e-2, log = true}\n"
        "train.steps = {low = 3, high = 5}\n"
    )
    trials = read_sweep(path).trials
    assert trials == read_sweep(path).trials
    assert len({str(trial) for trial in trials}) > 1
    for trial in trials:
        assert trial["model.dropout"] in (0.0, 0.1)
        assert 1e-4 <= trial["train.learning_rate"] <= 1e-2
        assert trial["train.steps"] in (3, 4, 5)
    path.write_text('data = "pairs.tsv"\n[gird]\n')
    with pytest.raises(RegardError, match=r"unknown key 'gird' in .*; did you mean 'grid'"):
        read_sweep(path)


def test_sweep_runs_resumes_and_ranks(tmp_path, data, capsys):
    fixed = {**TINY["transformer"]}
    del fixed["width"]
    lines = [f"model.{name} = {value}" for name, value in fixed.items()]
    path = tmp_path / "widths.toml"
    path.write_text(
        f'data = "{data}"\nout = "{tmp_path / "sweep"}"\nseeds = 2\n[fixed]\ntrain.steps = 2\n'
        + "train.evaluations = 1\ntrain.batch_tokens = 192\ntext.max_tokens = 8\n"
        + "\n".join(lines)
        + "\n[grid]\nmodel.width = [8, 7]\n"
    )
    out, _ = command(capsys, "sweep", path)
    rows = [line.split("\t") for line in (tmp_path / "sweep/sweep.tsv").read_text().splitlines()]
    assert rows[0][:2] == ["model.width", "character error rate"]
    assert [row[0] for row in rows[1:]] == ["8", "7"]  # 7 is not a multiple of the heads
    assert " ± " in rows[1][1]
    assert "width" in rows[2][1]
    page = (tmp_path / "sweep/sweep.html").read_text()
    assert 'class="bars"' in page
    assert "model.width" in out
    before = (tmp_path / "sweep/trial-1/seed-1/checkpoints").stat().st_mtime
    again, err = command(capsys, "sweep", path)
    assert again == out
    assert err.count("complete; nothing is left to train") == 2
    assert (tmp_path / "sweep/trial-1/seed-1/checkpoints").stat().st_mtime == before
