"""The quality benchmark on tiny data: its trainings, its figures and its tables."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
import quality
import quality_students
import torch
from quality_runs import CONFIGS, Trial, attempt, decode, evaluate, job
from quality_scores import CONVENTIONS
from quality_sets import READERS, Example, read_pairs, write, write_pairs
from quality_students import students
from quality_tables import checks, table

from regard import bundle
from regard.config import TrainSettings
from regard.training.auto_settings import check_settings

SMALL = (
    "model.width=16",
    "model.heads=2",
    "model.ffn_width=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
)
QUICK = ("train.precision=float32", "train.batch_tokens=64", "train.learning_rate=0.01")


def trial(name: str, data: Path, tmp_path: Path, **options) -> Trial:
    write(READERS[name](data), tmp_path / "parts")
    options = {
        "method": "recipe",
        "seed": 1,
        "out": tmp_path / "run",
        "overrides": (*SMALL, *QUICK),
    } | options
    return Trial(name, parts=tmp_path / "parts", **options)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_recipe_has_valid_settings(name: str, data: Path, tmp_path: Path):
    made = job(trial(name, data, tmp_path, overrides=(), seed=7))
    check_settings(made.settings)
    assert made.train.seed == 7
    assert made.train.precision == "bfloat16"
    recipe = (CONFIGS / f"{CONVENTIONS[name].recipe}.toml").read_text()
    assert "# Data: " in recipe
    assert f"DATA {CONVENTIONS[name].recipe}" in recipe


def test_auto_gets_nothing_but_the_seed(data: Path, tmp_path: Path):
    made = job(trial("scan-length", data, tmp_path, method="auto", seed=3))
    assert (made.model, made.size, made.train) == ({}, "auto", TrainSettings(seed=3))


def test_overrides_replace_recipe_settings(data: Path, tmp_path: Path):
    made = job(trial("scan-length", data, tmp_path, run_length={"minutes": 2.0}))
    assert (made.train.minutes, made.train.steps, made.train.optimizer) == (2.0, None, "adamw")
    assert (made.model["width"], made.model["position"]) == (16, "shaw")


@pytest.fixture(scope="module")
def two(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """Two seeds of one small training."""
    home = tmp_path_factory.mktemp("two")
    made = trial("scan-length", data, home, run_length={"steps": 60})
    return [made, replace(made, seed=2, out=home / "other")]


@pytest.fixture(scope="module")
def results(two: list[Trial]) -> list[dict]:
    return [attempt(one) for one in two]


def test_trials_are_evaluated_on_dev_and_test(results: list[dict]):
    for result in results:
        assert "error" not in result
        assert set(result["figures"]) == {"dev exact", "test exact"}
        assert (result["steps"], result["figures"]["test exact"]) == (
            60,
            0.0,
        )  # 60 steps are too few for 27 actions
    assert [result["seed"] for result in results] == [1, 2]


def test_a_finished_trial_is_not_repeated(two, results):
    assert attempt(two[0]) == results[0]  # including the seconds
    again = attempt(replace(two[0], length_penalty=2.0))  # another search on the same training
    assert again["figures"] == results[0]["figures"]
    assert again["total_seconds"] != results[0]["total_seconds"]


def test_ensembles_are_evaluated_and_stored(two, results, data: Path, tmp_path: Path, monkeypatch):
    both = quality.ensembles(two, results)
    assert both[0]["method"] == "recipe, ensemble of 2"
    assert both[0]["parameters"] == 2 * results[0]["parameters"]
    facts = {"machine": "a machine", "examples": quality.sizes(READERS["scan-length"](data))}
    quality.keep(tmp_path, "scan-length", facts, [*results, *both], [])
    stored = json.loads((tmp_path / "quality-scan-length.json").read_text())
    assert stored["examples"] == {"train": 21, "dev": 1, "test": 1}
    assert len(stored["results"]) == 3
    assert not any(str(place) in json.dumps(stored) for place in (data, tmp_path, two[0].parts))


def test_students_train_on_data_and_outputs_of_all_teachers(data: Path, tmp_path: Path):
    teacher = trial("scan-length", data, tmp_path, run_length={"steps": 3}, label_sources=True)
    other = replace(teacher, seed=2, out=tmp_path / "other")
    results = [attempt(teacher)]
    real = read_pairs(teacher.parts / "train.tsv")
    labels = read_pairs(teacher.out / "outputs.tsv")
    assert {source for source, _ in labels} <= {source for source, _ in real}
    write_pairs(teacher.out / "outputs.tsv", [real[0], ("walk thrice", "I_RUN")])
    other.out.mkdir()
    write_pairs(other.out / "outputs.tsv", [("walk thrice", "I_RUN"), ("walk thrice", "I_LOOK")])
    assert students([teacher, other], results) == []  # one is missing
    first, second = students(
        [teacher, other], [*results, {**results[0], "seed": 2, "planned_steps": 5}]
    )
    assert read_pairs(first.parts / "train.tsv") == [
        *real,
        ("walk thrice", "I_RUN"),
        ("walk thrice", "I_LOOK"),
    ]
    assert (first.run_length, second.run_length, second.seed) == ({"steps": 3}, {"steps": 5}, 2)
    learned = attempt(first)
    assert (learned["method"], learned["steps"]) == ("distilled", 3)
    assert set(learned["figures"]) == {"dev exact", "test exact"}
    assert not (first.out / "outputs.tsv").exists()


def test_students_start_after_the_last_recipe_run(data: Path, tmp_path: Path, monkeypatch, capsys):
    """The whole program without its trainings."""

    def outcomes(trials, parallel, more):
        waiting = [replace(trial) for trial in trials]
        while waiting:
            one = waiting.pop()
            result = ours(one.method, one.seed, exact=50.0 + (one.method == "distilled")) | {
                "set": one.name,
                "planned_steps": 7,
            }
            waiting += [replace(trial) for trial in more(result)]
            yield result

    monkeypatch.setattr(quality, "outcomes", outcomes)
    monkeypatch.setattr(
        quality_students, "write_distilled_parts", lambda parts, labels, folder: parts
    )
    words = [
        "scan-length",
        "--data",
        str(data),
        "--distil",
        "--auto",
        "--seeds",
        "1",
        "2",
        "--keep",
        str(tmp_path),
    ]
    monkeypatch.setattr("sys.argv", ["quality.py", *words])
    quality.main()
    stored = json.loads((tmp_path / "quality-scan-length.json").read_text())
    assert [one["method"] for one in stored["results"]] == ["recipe"] * 2 + ["distilled"] * 2 + [
        "auto"
    ] * 2
    printed = capsys.readouterr().out
    assert "Regard, distilled  51.00" in printed
    assert printed.index("recipe, seed 1: ") < printed.index("distilled, seed 1: ")


def test_commands_are_stored_without_local_paths(data: Path, tmp_path: Path, monkeypatch):
    words = ["scan-length", "--data", str(data), "--ensemble", "--keep", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["quality.py", *words])
    stored = " ".join(quality.trials("scan-length", quality.arguments(words), tmp_path)[0].command)
    assert (
        stored == "python benchmarks/quality.py scan-length --data DATA --ensemble --keep RESULTS"
    )


def test_separate_runs_are_joined(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    facts = {"machine": "a machine", "examples": {"train": 1}}
    one = [ours("recipe", 1, wer=20.0, per=4.0), ours("recipe", 2, wer=99.0, per=9.0)]
    other = [ours("recipe", 2, wer=21.0, per=4.0), ours("auto", 1, wer=20.5, per=4.0)]
    for folder, results in (("one", one), ("other", other)):
        quality.keep(tmp_path / folder, "cmudict", facts, results, [])
    paths = [str(tmp_path / folder / "quality-cmudict.json") for folder in ("one", "other")]
    monkeypatch.setattr("sys.argv", ["quality.py", "--join", *paths, "--keep", str(tmp_path)])
    quality.main()
    stored = json.loads((tmp_path / "quality-cmudict.json").read_text())
    assert [(result["method"], result["seed"]) for result in stored["results"]] == [
        ("recipe", 1),
        ("recipe", 2),
        ("auto", 1),
    ]
    made = {check["name"]: check["value"] for check in stored["checks"]}
    assert made["test wer, model"] == 20.5  # of two results for one seed the later counts
    assert made["test wer: auto behind the recipe, %"] == 0.0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["machine"] == "a machine"


def test_an_ensemble_of_equal_models_equals_the_model(two, results):
    folder = two[0].out / "bundle"
    assert evaluate([folder, folder], two[0])["figures"] == results[0]["figures"]


def test_dev_only_does_not_read_test_sets(two, results):
    trial = replace(two[0], dev_only=True)
    assert set(evaluate([trial.out / "bundle"], trial)["figures"]) == {"dev exact"}


def test_outputs_may_be_far_longer_than_their_source(two, results):
    trained = bundle.load(two[0].out / "bundle")
    trained.card["longest"]["target"] = 40
    with torch.no_grad():  # it always generates token 5 and never ends
        for norm in (
            part for part in trained.model.modules() if isinstance(part, torch.nn.LayerNorm)
        ):
            norm.weight.zero_()
            norm.bias.fill_(1)
        trained.model.output.table.zero_()
        trained.model.output.table[5] = 1
    ((output,),) = decode(trained, [Example("walk", [""])], CONVENTIONS["scan-length"])
    assert (
        output.split() == [trained.target.label(5)] * 90
    )  # 2 · 40 + 10; the limit from the source would be 24


def test_a_failed_training_is_reported(two, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bad = replace(two[0], overrides=("model.width=15",), out=tmp_path)
    assert "model.width = 15" in attempt(bad)["error"]
    results = [{"method": "recipe", "seed": 1, "error": "…"}]
    assert "failed" in table("scan-length", [*results, ours("auto", 2, exact=50.0)])
    assert [made.ok for made in checks("scan-length", results)] == [False]


def ours(method: str, seed: int, **figures: float) -> dict:
    renamed = {f"test {metric.replace('_', '-')}": value for metric, value in figures.items()}
    return {
        "method": method,
        "seed": seed,
        "figures": renamed,
        "parameters": 1_000,
        "seconds": 60.0,
    }


def test_table_has_means_spreads_and_published_figures():
    results = [
        ours("recipe", seed, wer=wer, per=5.0) for seed, wer in ((1, 20.0), (2, 21.0), (3, 22.0))
    ]
    shown = table("cmudict", results)
    assert "21.00 ± 1.00" in shown  # √((1 + 0 + 1) / 2) = 1
    assert "20.24" in shown
    assert "Toshniwal & Livescu 2016" in shown
    assert "seeds 1 2 3" in shown


def test_checks_compare_with_targets_and_recipe():
    recipe = [ours("recipe", seed, wer=wer, per=4.8) for seed, wer in ((1, 20.0), (2, 21.0))]
    auto = [ours("auto", 1, wer=21.6, per=5.0)]
    ensemble = [ours("recipe, ensemble of 2", 0, wer=19.8, per=4.5)]
    made = {check.name: check for check in checks("cmudict", [*recipe, *auto, *ensemble])}
    assert (made["test wer, model"].value, made["test wer, model"].ok) == (20.5, True)
    assert (made["test wer, ensemble"].value, made["test wer, ensemble"].ok) == (19.8, True)
    behind = [made[f"test {figure}: auto behind the recipe, %"] for figure in ("wer", "per")]
    assert [check.value for check in behind] == pytest.approx([100 * 1.1 / 20.5, 100 * 0.2 / 4.8])
    assert [check.ok for check in behind] == [False, True]
    named = [
        ours("recipe", 1, **{"1_best": 0.66, "3_best": 0.79}),
        ours("auto", 1, **{"1_best": 0.65, "3_best": 0.8}),
    ]
    made = {check.name: check for check in checks("names-ru", named)}
    assert (made["test 1-best, model"].ok, made["test 3-best, model"].ok) == (True, False)
    assert made["test 1-best: auto behind the recipe, %"].value == pytest.approx(100 / 66)


def test_missing_or_unknown_sets_are_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        quality.arguments(["cmudict", "--data", "x", "--no-recipe"])
    assert "add --auto" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        quality.arguments(["cmudcit", "--data", "x"])
    assert "unknown set cmudcit" in capsys.readouterr().err
    assert isinstance(quality.arguments(["cmudict", "--data", "x"]), argparse.Namespace)


def test_trials_do_not_overwrite_stored_results(data: Path, tmp_path: Path, capsys):
    for trial_options in (["--dev-only"], ["--set", "train.learning_rate=0.1"]):
        with pytest.raises(SystemExit):
            quality.arguments(["scan-length", "--data", str(data), *trial_options, "--keep"])
        assert "give --keep another folder" in capsys.readouterr().err
        assert (
            quality.arguments(
                ["scan-length", "--data", str(data), *trial_options, "--keep", str(tmp_path)]
            ).keep
            == tmp_path
        )


def test_auto_ignores_overrides(data: Path, tmp_path: Path):
    made = trial(
        "scan-length",
        data,
        tmp_path,
        method="auto",
        overrides=("model.width=wrong",),
        run_length={"steps": 1},
    )
    assert attempt(made)["overrides"] == []
