"""The comparison of position encodings: grouped figures, the best encoding, the picture."""

import json
from pathlib import Path

import positions
import pytest
from quality_runs import attempt

from regard.plots.figures import trim
from regard.positions import POSITIONS


def result(name: str, position: str, seed: int, figures: dict, details: dict | None = None) -> dict:
    identity = {"set": name, "overrides": [f"model.position={position}"], "seed": seed}
    return {**identity, "figures": figures, "details": details or {}}


WORDS = [
    result("cmudict-short", position, seed, {"1–8 wer": wer, "1–8 per": 1.0, "9–10 wer": wer + 10})
    for position, wers in {
        "sinusoidal": (30.0, 32.0),
        "rotary": (20.0, 22.0),
        "learned": (10.0, 10.0),
    }.items()
    for seed, wer in enumerate(wers, 1)
]


def test_one_command_trains_every_encoding_alike(data: Path, tmp_path: Path, monkeypatch, capsys):
    results_file = tmp_path / "positions.json"
    words = [
        "--data",
        str(data),
        "--sets",
        "scan-length",
        "--only",
        "none",
        "t5",
        "--seeds",
        "2",
        "--share",
        "0.001",
    ]
    monkeypatch.setattr("sys.argv", ["positions.py", *words, "--keep", str(results_file)])
    monkeypatch.setattr(positions, "outcomes", lambda trials, parallel: map(attempt, trials))
    positions.main()
    results = json.loads(results_file.read_text())["results"]
    assert [(one["overrides"][0], one["seed"], one["steps"]) for one in results] == [
        ("model.position=none", 2, 2),
        ("model.position=t5", 2, 2),
    ]
    first, second = (one["overrides"] for one in results)
    assert first[1:] == second[1:]
    assert "train.rdrop=0" in first
    assert " ".join(results[0]["command"]).endswith("--share 0.001 --keep RESULTS")
    assert '"checks": [{"name": "trainings completed", "value": 2' in capsys.readouterr().out


def test_figures_are_grouped_by_set_encoding_and_length():
    groups = {"test groups": {"27": 50.0, "30": 25.0}, "dev groups": {"3": 100.0}}
    grouped = positions.group(
        [result("scan-length-26", "shaw", 1, {"test exact": 40.0}, groups), *WORDS]
    )
    assert grouped["scan-length-26"] == {
        "test exact": {"shaw": [40.0]},
        "27 symbols": {"shaw": [50.0]},
        "30 symbols": {"shaw": [25.0]},
    }
    assert grouped["cmudict-short"]["1–8 wer"]["rotary"] == [20.0, 22.0]


def test_best_relative_encoding_is_compared_with_sinusoidal():
    exact = {
        "sinusoidal": (5.0, 7.0),
        "rotary": (60.0, 70.0),
        "shaw": (50.0, 52.0),
        "learned": (90.0, 90.0),
    }
    scan = [
        result("scan-length-26", position, seed, {"test exact": value, "dev exact": 100.0})
        for position, values in exact.items()
        for seed, value in enumerate(values, 1)
    ]
    made = {
        check.name: check
        for check in positions.checks([*scan, *WORDS, {"set": "cmudict", "error": "…"}])
    }
    assert len(made) == 2  # words of all lengths are in the table only
    assert not made["trainings completed"].ok
    won = made[
        "scan-length-26, exact: rotary over sinusoidal"
    ]  # learned is better still, but not relative
    assert (won.value, won.ok) == (pytest.approx(59.0), True)


def test_table_has_means_and_spreads_of_the_chosen_figure():
    lines = positions.table("cmudict-short", positions.group(WORDS)["cmudict-short"]).split("\n")
    assert lines[0].split() == ["cmudict-short:", "wer", "1–8", "9–10"]
    assert lines[3].split() == ["rotary", "21.0", "±", "1.4", "31.0", "±", "1.4"]  # √2 = 1.41


def test_picture_has_a_line_for_every_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn = []
    monkeypatch.setattr(
        "regard.plots.figures.trim", lambda figure: drawn.append(figure) or trim(figure)
    )
    groups = {"test groups": {"30": 25.0, "27": 50.0}}
    results = [result("scan-length-26", name, 1, {"test exact": 1.0}, groups) for name in POSITIONS]
    positions.draw({"results": [*results, *WORDS]}, tmp_path / "positions.png")
    scan, words = drawn[0].axes  # none for captions, which have no results
    assert [one.get_label() for one in scan.containers] == list(POSITIONS)
    assert [one.get_label() for one in words.containers] == ["sinusoidal", "learned", "rotary"]
    assert scan.containers[0].lines[0].get_ydata().tolist() == [50.0, 25.0]  # 27 actions before 30
    assert (tmp_path / "positions.png").stat().st_size > 1_000


def test_later_results_replace_earlier_ones(tmp_path: Path):
    first = [
        result("cmudict", name, seed, {"test wer": 30.0})
        for name in ("t5", "distance")
        for seed in (1, 2)
    ]
    second = [result("cmudict", "distance", 2, {"test wer": 20.0})]
    for name, some in (("a", first), ("b", second)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": some}))
    both = positions.group(positions.join([tmp_path / "a.json", tmp_path / "b.json"]))
    assert both["cmudict"]["test wer"] == {"t5": [30.0, 30.0], "distance": [30.0, 20.0]}
