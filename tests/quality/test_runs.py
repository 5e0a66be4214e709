"""Trainings of the quality benchmark, in small: what is trained, what is measured, and what is told of it."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
import quality
import quality_students
import torch
from quality_runs import CONFIGS, Trial, answers, attempt, job, measured
from quality_scores import CONVENTIONS
from quality_sets import READERS, Question, read_pairs, write, write_pairs
from quality_students import students
from quality_tables import checks, table

from regard import bundle
from regard.config import TrainSettings
from regard.train.auto_settings import check

SMALL = ("model.width=16", "model.heads=2", "model.ffn_width=16", "model.encoder_layers=1", "model.decoder_layers=1")
QUICK = ("train.precision=float32", "train.batch_tokens=64", "train.learning_rate=0.01")


def trial(name: str, data: Path, tmp_path: Path, **options) -> Trial:
    write(READERS[name](data), tmp_path / "parts")
    options = {"way": "recipe", "seed": 1, "out": tmp_path / "run", "overrides": (*SMALL, *QUICK)} | options
    return Trial(name, parts=tmp_path / "parts", **options)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_recipe_is_one_that_training_takes(name: str, data: Path, tmp_path: Path):
    asked = job(trial(name, data, tmp_path, overrides=(), seed=7))
    check(asked.family, asked.size, asked.model, asked.train)
    assert asked.train.seed == 7
    assert asked.train.precision == "bfloat16"
    told = (CONFIGS / f"{CONVENTIONS[name].recipe}.toml").read_text()
    assert "# Data: " in told
    assert f"DATA {CONVENTIONS[name].recipe}" in told


def test_auto_is_told_nothing_but_the_seed(data: Path, tmp_path: Path):
    asked = job(trial("scan-length", data, tmp_path, way="auto", seed=3))
    assert (asked.model, asked.size, asked.train) == ({}, "auto", TrainSettings(seed=3))


def test_what_is_given_goes_over_the_recipe(data: Path, tmp_path: Path):
    asked = job(trial("scan-length", data, tmp_path, ends={"minutes": 2.0}))
    assert (asked.train.minutes, asked.train.steps, asked.train.optimizer) == (2.0, None, "adamw")
    assert (asked.model["width"], asked.model["position"]) == (16, "shaw")


@pytest.fixture(scope="module")
def two(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """Two seeds of one small training."""
    home = tmp_path_factory.mktemp("two")
    made = trial("scan-length", data, home, ends={"steps": 60})
    return [made, replace(made, seed=2, out=home / "other")]


@pytest.fixture(scope="module")
def results(two: list[Trial]) -> list[dict]:
    return [attempt(one) for one in two]


def test_trained_and_measured_on_dev_and_test(results: list[dict]):
    for result in results:
        assert "error" not in result
        assert set(result["figures"]) == {"dev exact", "test exact"}
        assert (result["steps"], result["figures"]["test exact"]) == (60, 0.0)  # nobody counts to 27 after 60 steps
    assert [result["seed"] for result in results] == [1, 2]


def test_a_trial_that_was_done_is_not_done_again(two, results):
    assert attempt(two[0]) == results[0]  # to the seconds that it took
    again = attempt(replace(two[0], length=2.0))  # another search, of the same training
    assert again["figures"] == results[0]["figures"]
    assert again["whole_seconds"] != results[0]["whole_seconds"]


def test_models_together_and_what_is_kept_of_them(two, results, data: Path, tmp_path: Path, monkeypatch):
    both = quality.together(two, results)
    assert both[0]["way"] == "recipe, 2 together"
    assert both[0]["parameters"] == 2 * results[0]["parameters"]
    facts = {"machine": "a machine", "questions": quality.sizes(READERS["scan-length"](data))}
    quality.keep(tmp_path, "scan-length", facts, [*results, *both], [])
    kept = json.loads((tmp_path / "quality-scan-length.json").read_text())
    assert kept["questions"] == {"train": 21, "dev": 1, "test": 1}
    assert len(kept["results"]) == 3
    assert not any(str(place) in json.dumps(kept) for place in (data, tmp_path, two[0].parts))


def test_students_learn_from_the_data_and_the_answers_of_all_teachers(data: Path, tmp_path: Path):
    teacher = trial("scan-length", data, tmp_path, ends={"steps": 3}, teach=True)
    other = replace(teacher, seed=2, out=tmp_path / "other")
    results = [attempt(teacher)]
    real = read_pairs(teacher.parts / "train.tsv")
    said = read_pairs(teacher.out / "answers.tsv")
    assert {source for source, _ in said} <= {source for source, _ in real}
    write_pairs(teacher.out / "answers.tsv", [real[0], ("walk thrice", "I_RUN")])
    other.out.mkdir()
    write_pairs(other.out / "answers.tsv", [("walk thrice", "I_RUN"), ("walk thrice", "I_LOOK")])
    assert students([teacher, other], results) == []  # one is missing
    first, second = students([teacher, other], [*results, {**results[0], "seed": 2, "of": 5}])
    assert read_pairs(first.parts / "train.tsv") == [*real, ("walk thrice", "I_RUN"), ("walk thrice", "I_LOOK")]
    assert (first.ends, second.ends, second.seed) == ({"steps": 3}, {"steps": 5}, 2)
    learned = attempt(first)
    assert (learned["way"], learned["steps"]) == ("distilled", 3)
    assert set(learned["figures"]) == {"dev exact", "test exact"}
    assert not (first.out / "answers.tsv").exists()


def test_students_start_when_the_recipes_last_model_is_there(data: Path, tmp_path: Path, monkeypatch, capsys):
    """The whole program, its trainings left out."""

    def outcomes(trials, parallel, more):
        waiting = [replace(trial) for trial in trials]
        while waiting:
            one = waiting.pop()
            result = ours(one.way, one.seed, exact=50.0 + (one.way == "distilled")) | {"set": one.name, "of": 7}
            waiting += [replace(trial) for trial in more(result)]
            yield result

    monkeypatch.setattr(quality, "outcomes", outcomes)
    monkeypatch.setattr(quality_students, "taught", lambda parts, answers, folder: parts)
    words = ["scan-length", "--data", str(data), "--distil", "--auto", "--seeds", "1", "2", "--keep", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["quality.py", *words])
    quality.main()
    kept = json.loads((tmp_path / "quality-scan-length.json").read_text())
    assert [one["way"] for one in kept["results"]] == ["recipe"] * 2 + ["distilled"] * 2 + ["auto"] * 2
    said = capsys.readouterr().out
    assert "Regard, distilled  51.00" in said
    assert said.index("recipe, seed 1: ") < said.index("distilled, seed 1: ")


def test_a_command_is_kept_without_the_places_of_this_machine(data: Path, tmp_path: Path, monkeypatch):
    words = ["scan-length", "--data", str(data), "--ensemble", "--keep", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["quality.py", *words])
    said = " ".join(quality.trials("scan-length", quality.arguments(words), tmp_path)[0].command)
    assert said == "python benchmarks/quality.py scan-length --data DATA --ensemble --keep RESULTS"


def test_runs_apart_are_joined(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    facts = {"machine": "a machine", "questions": {"train": 1}}
    one = [ours("recipe", 1, wer=20.0, per=4.0), ours("recipe", 2, wer=99.0, per=9.0)]
    other = [ours("recipe", 2, wer=21.0, per=4.0), ours("auto", 1, wer=20.5, per=4.0)]
    for folder, results in (("one", one), ("other", other)):
        quality.keep(tmp_path / folder, "cmudict", facts, results, [])
    paths = [str(tmp_path / folder / "quality-cmudict.json") for folder in ("one", "other")]
    monkeypatch.setattr("sys.argv", ["quality.py", "--join", *paths, "--keep", str(tmp_path)])
    quality.main()
    kept = json.loads((tmp_path / "quality-cmudict.json").read_text())
    assert [(result["way"], result["seed"]) for result in kept["results"]] == [
        ("recipe", 1),
        ("recipe", 2),
        ("auto", 1),
    ]
    made = {check["name"]: check["value"] for check in kept["checks"]}
    assert made["test wer, model"] == 20.5  # of two for one seed the later counts
    assert made["test wer: auto behind the recipe, %"] == 0.0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["machine"] == "a machine"


def test_a_model_twice_is_the_model(two, results):
    folder = two[0].out / "bundle"
    assert measured([folder, folder], two[0])["figures"] == results[0]["figures"]


def test_tests_stay_closed_while_settings_are_chosen(two, results):
    closed = replace(two[0], dev_only=True)
    assert set(measured([closed.out / "bundle"], closed)["figures"]) == {"dev exact"}


def test_answers_may_be_far_longer_than_their_question(two, results):
    held = bundle.load(two[0].out / "bundle")
    held.card["longest"]["target"] = 40
    with torch.no_grad():  # whatever it reads, it says token 5 and never ends
        for norm in (part for part in held.model.modules() if isinstance(part, torch.nn.LayerNorm)):
            norm.weight.zero_()
            norm.bias.fill_(1)
        held.model.output.table.zero_()
        held.model.output.table[5] = 1
    ((said,),) = answers(held, [Question("walk", [""])], CONVENTIONS["scan-length"])
    assert said.split() == [held.target.label(5)] * 90  # 2 · 40 + 10; by the source it would be 24


def test_a_failure_is_told_and_the_others_go_on(two, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bad = replace(two[0], overrides=("model.width=15",), out=tmp_path)
    assert "model.width = 15" in attempt(bad)["error"]
    results = [{"way": "recipe", "seed": 1, "error": "…"}]
    assert "failed" in table("scan-length", [*results, ours("auto", 2, exact=50.0)])
    assert [made.ok for made in checks("scan-length", results)] == [False]


def ours(way: str, seed: int, **figures: float) -> dict:
    told = {f"test {metric.replace('_', '-')}": value for metric, value in figures.items()}
    return {"way": way, "seed": seed, "figures": told, "parameters": 1_000, "seconds": 60.0}


def test_the_table_has_means_spreads_and_what_was_published():
    results = [ours("recipe", seed, wer=wer, per=5.0) for seed, wer in ((1, 20.0), (2, 21.0), (3, 22.0))]
    said = table("cmudict", results)
    assert "21.00 ± 1.00" in said  # √((1 + 0 + 1) / 2) = 1
    assert "20.24" in said
    assert "Toshniwal & Livescu 2016" in said
    assert "seeds 1 2 3" in said


def test_checks_hold_models_to_what_was_asked_and_auto_to_the_recipe():
    recipe = [ours("recipe", seed, wer=wer, per=4.8) for seed, wer in ((1, 20.0), (2, 21.0))]
    auto = [ours("auto", 1, wer=21.6, per=5.0)]
    ensemble = [ours("recipe, 2 together", 0, wer=19.8, per=4.5)]
    made = {check.name: check for check in checks("cmudict", [*recipe, *auto, *ensemble])}
    assert (made["test wer, model"].value, made["test wer, model"].ok) == (20.5, True)
    assert (made["test wer, ensemble"].value, made["test wer, ensemble"].ok) == (19.8, True)
    behind = [made[f"test {figure}: auto behind the recipe, %"] for figure in ("wer", "per")]
    assert [check.value for check in behind] == pytest.approx([100 * 1.1 / 20.5, 100 * 0.2 / 4.8])
    assert [check.ok for check in behind] == [False, True]
    named = [ours("recipe", 1, **{"1_best": 0.66, "3_best": 0.79}), ours("auto", 1, **{"1_best": 0.65, "3_best": 0.8})]
    made = {check.name: check for check in checks("names-ru", named)}
    assert (made["test 1-best, model"].ok, made["test 3-best, model"].ok) == (True, False)
    assert made["test 1-best: auto behind the recipe, %"].value == pytest.approx(100 / 66)


def test_nothing_to_train_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        quality.arguments(["cmudict", "--data", "x", "--no-recipe"])
    assert "add --auto" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        quality.arguments(["cmudcit", "--data", "x"])
    assert "unknown set cmudcit" in capsys.readouterr().err
    assert isinstance(quality.arguments(["cmudict", "--data", "x"]), argparse.Namespace)


def test_what_is_tried_does_not_go_over_what_is_kept(data: Path, tmp_path: Path, capsys):
    for tried in (["--dev-only"], ["--set", "train.learning_rate=0.1"]):
        with pytest.raises(SystemExit):
            quality.arguments(["scan-length", "--data", str(data), *tried, "--keep"])
        assert "--keep a folder of its own" in capsys.readouterr().err
        assert quality.arguments(["scan-length", "--data", str(data), *tried, "--keep", str(tmp_path)]).keep == tmp_path


def test_what_is_set_is_not_told_of_auto_which_does_not_hear_it(data: Path, tmp_path: Path):
    made = trial("scan-length", data, tmp_path, way="auto", overrides=("model.width=wrong",), ends={"steps": 1})
    assert attempt(made)["overrides"] == []
