"""`regard train`: seeds, extension and restart of a run, its messages and file modes."""

import json
import os
import shutil

import pytest

import regard
from regard import bundle
from tests.commands.small import arguments, pairs, written
from tests.commands.small import regard as command

DATA = pairs(400, seed=3)
STEPS = ("--steps", "4", "--set", "train.evaluations=1")


def fingerprints(out):
    """The identities of the tokenizers, and the held-out part of the data."""
    made = bundle.load(out / "bundle")
    prepared = json.loads((out / "data/prepared.json").read_text())
    return made.source.fingerprint, made.target.fingerprint, prepared["threshold"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data") / "pairs.tsv", DATA)


@pytest.fixture
def finished(tmp_path, data, capsys):
    """A finished run of four steps, and its command without a length."""
    words = arguments(data, tmp_path / "run", "--set", "train.evaluations=1")
    command(capsys, *words, "--steps", "4")
    return words


def test_the_training_seed_changes_neither_split_nor_tokenizers(tmp_path, data, capsys):
    for seed in (1, 2):
        words = arguments(data, tmp_path / str(seed), *STEPS, "--set", f"train.seed={seed}")
        _, err = command(capsys, *words)
        assert "held out" in err
    one, two = tmp_path / "1", tmp_path / "2"
    assert fingerprints(one) == fingerprints(two)
    hashes = [bundle.load(run / "bundle").training_sources.hashes.tolist() for run in (one, two)]
    assert hashes[0] == hashes[1]
    ensemble = regard.load([one, two])  # refuses models with different tokenizers
    assert str(ensemble("abca")) != ""
    weights = [(run / "bundle/weights.safetensors").read_bytes() for run in (one, two)]
    assert weights[0] != weights[1]


def test_the_split_seed_changes_the_held_out_set(tmp_path, data, capsys):
    for seed in (1, 2):
        words = arguments(data, tmp_path / str(seed), *STEPS, "--set", f"text.split_seed={seed}")
        command(capsys, *words)
    hashes = []
    for seed in ("1", "2"):
        known = bundle.load(tmp_path / seed / "bundle").training_sources
        assert known.complete
        hashes.append({source for source, _ in DATA if known.contains(source)})
    assert hashes[0] != hashes[1]


def test_bundle_files_follow_the_umask(tmp_path, data, capsys):
    old = os.umask(0o022)
    try:
        command(capsys, *arguments(data, tmp_path / "run", *STEPS))
    finally:
        os.umask(old)
    files = [*(tmp_path / "run/bundle").iterdir(), *(tmp_path / "run/checkpoints").iterdir()]
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in files} == {
        path.name: "0o644" for path in files
    }


def test_a_finished_run_says_that_it_is_complete(tmp_path, finished, capsys):
    _, err = command(capsys, *finished, "--steps", "4")
    assert "steps: 4, complete; nothing is left to train\n" in err
    assert "resumed" not in err
    assert "next: --extend with more minutes, steps or epochs continues it" in err


def test_another_length_is_refused_with_the_remedy(tmp_path, finished, capsys):
    _, err = command(capsys, *finished, "--steps", "8", code=2)
    assert err.splitlines()[-1] == (
        "regard: this run began with other settings: train.steps was 4 and is 8. Use the old "
        "ones, --extend to continue with a new length, --restart to start over, or another --out"
    )


def test_a_finished_run_is_extended(tmp_path, finished, capsys):
    _, err = command(capsys, *finished, "--steps", "8", "--extend")
    assert "resumed: from step 4\n" in err
    assert bundle.load(tmp_path / "run/bundle").card["of"] in (4, 8)  # the best of both
    _, err = command(capsys, *finished, "--steps", "8")  # the new length is the run's own
    assert "steps: 8, complete; nothing is left to train\n" in err
    _, err = command(capsys, *finished, "--steps", "6", "--extend", code=2)
    assert err.splitlines()[-1].startswith("regard: this run has 8 steps already, in ")
    _, err = command(capsys, *finished, "--minutes", "0.2", "--extend")
    assert "resumed: from step 8\n" in err


def test_restart_starts_over(tmp_path, finished, capsys):
    (tmp_path / "run/notes.txt").write_text("mine")
    _, err = command(capsys, *finished, "--steps", "6", "--restart")
    assert "resumed" not in err
    assert bundle.load(tmp_path / "run/bundle").card["of"] == 6
    assert (tmp_path / "run/notes.txt").read_text() == "mine"
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("mine")
    _, err = command(capsys, *finished, "--steps", "6", "--restart", code=2)
    folder = str(tmp_path / "run")
    assert err == f"regard: {folder!r} is not the folder of a run; use another --out\n"


def test_a_run_folder_is_loaded(tmp_path, finished, capsys):
    run = tmp_path / "run"
    assert str(regard.load(run)("abca")) == str(regard.load(run / "bundle")("abca"))
    printed = [command(capsys, "predict", folder, "abca") for folder in (run, run / "bundle")]
    assert printed[0] == printed[1]


def test_inspect_names_the_step_of_the_best_model(finished, tmp_path, capsys):
    path = tmp_path / "run/bundle"
    made = bundle.load(path)
    shown, _ = command(capsys, "inspect", path)
    assert f"best model: step {made.card['steps']} of {made.card['of']} in " in shown
