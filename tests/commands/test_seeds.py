"""`regard train --seeds N`: one bundle that is an ensemble, or one model distilled from it."""

import json

import numpy as np
import pytest

import regard
from regard import bundle
from regard.bundle import model_files
from regard.ensemble_settings import EnsembleSettings
from regard.errors import RegardError
from regard.models import Ensemble
from regard.quantization import quantize
from regard.seeds import target_orders, train_seeds
from regard.training.teacher_outputs import TRAINING_PAIRS
from tests.commands.small import arguments, pairs, written
from tests.commands.small import regard as command

WORDS = ["ab", "dcba", "cab"]
FEW = ("--steps", "3", "--set", "train.evaluations=1", "--set", "train.film=0")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data") / "pairs.tsv", pairs(120))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The folder of three seeds and their ensemble."""
    home = tmp_path_factory.mktemp("seeds") / "run"
    sizes = {"width": 16, "heads": 2, "encoder_layers": 3, "decoder_layers": 1, "ffn_width": 16}
    settings = {"steps": 3, "evaluations": 1, "film": 0}
    result = train_seeds(data, home, 3, model=sizes, train=settings)
    assert result.bundle == home / "bundle"
    assert isinstance(result.ensemble.model, Ensemble)
    return home


def test_the_bundle_averages_the_probabilities(trained):
    joined = regard.load(trained)
    each = [regard.load(trained / f"seed-{seed}").score("abcd", "dcba") for seed in (1, 2, 3)]
    forward = np.log(np.mean([np.exp(one.logps) for one in each[:2]], axis=0))
    expected = (2 * forward + each[2].logps) / 3  # the third generates targets from the end
    assert joined.score("abcd", "dcba").logps == pytest.approx(expected, rel=1e-4)
    members = [one.state_dict() for one in (*joined.model.members, *joined.model.reversed_members)]
    for seed, member in enumerate(members, 1):
        own = regard.load(trained / f"seed-{seed}").model.state_dict()
        assert all((member[name] == own[name]).all() for name in own)
    in_memory = regard.load([trained / f"seed-{seed}" for seed in (1, 2, 3)])
    assert [str(one) for one in joined.many(WORDS)] == [str(one) for one in in_memory.many(WORDS)]
    nested = regard.load([trained, trained / "seed-1"])  # members count alike, whatever their home
    assert [len(nested.model.members), len(nested.model.reversed_members)] == [3, 1]


def test_half_of_the_models_generate_targets_from_the_end(trained):
    orders = [
        bundle.read(trained / f"seed-{seed}/bundle").card["settings"]["text"]["target_order"]
        for seed in (1, 2, 3)
    ]
    assert orders == ["forward", "forward", "reversed"]
    assert target_orders(1) == ["forward"]
    assert target_orders(5) == ["forward"] * 3 + ["reversed"] * 2
    assert target_orders(2, "reversed") == ["reversed"] * 2


def test_one_order_on_request(data, tmp_path):
    settings = {"steps": 2, "evaluations": 1, "film": 0}
    sizes = {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 8}
    options = {"model": sizes, "train": settings}
    train_seeds(data, tmp_path / "given", 2, target_order="forward", **options)
    assert not len(regard.load(tmp_path / "given").model.reversed_members)
    init = tmp_path / "given/seed-1"
    train_seeds(data, tmp_path / "tuned", 2, init=init, train=settings)
    assert not len(regard.load(tmp_path / "tuned").model.reversed_members)
    with pytest.raises(RegardError, match="'reversed' differs from that of the initial model"):
        regard.train(data, tmp_path / "x", init=init, target_order="reversed", **settings)


def test_the_card_is_that_of_the_ensemble(trained):
    card = bundle.read(trained / "bundle").card
    assert card["ensemble"] == {"members": 3, "seeds": [1, 2, 3]}
    single = bundle.read(trained / "seed-1/bundle").card
    assert card["parameters"] == 3 * single["parameters"]
    references = {}
    rows = [json.loads(line) for line in (trained / "held_out.jsonl").read_text().splitlines()]
    for row in rows:
        references[row["source"]] = row["references"]
    outputs = [str(one) for one in regard.load(trained).many(references)]
    assert outputs == [row["output"] for row in rows]
    right = [out in some for out, some in zip(outputs, references.values(), strict=True)]
    assert card["metrics"]["sequence_accuracy"] == pytest.approx(100 * np.mean(right))
    assert card["calibration"]["method"] == "none"  # too few held-out sources
    text = (trained / "bundle/README.md").read_text()
    assert "an ensemble of 3 models" in text
    assert (trained / "report.html").exists()


def test_commands_take_an_ensemble(trained, tmp_path, capsys, data):
    expected = [str(one) for one in regard.load(trained).many(WORDS)]
    out, _ = command(capsys, "predict", trained, *WORDS)
    assert out.splitlines() == expected
    command(capsys, "predict", trained, *WORDS, "--output", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text().splitlines() == expected
    command(capsys, "pack", trained, tmp_path / "packed.zip")
    out, _ = command(capsys, "predict", tmp_path / "packed.zip", *WORDS)
    assert out.splitlines() == expected
    found = json.loads(command(capsys, "evaluate", trained, data, "--json")[0])
    assert found["sources"] == 120
    out, _ = command(capsys, "inspect", trained)
    assert out.count("encoder_layers 3") == 3
    assert "'ensemble'" in out  # why the native engine does not run it
    out, _ = command(capsys, "compare", trained, trained / "seed-1")
    assert "ensemble of 3, the first transformer" in out


def test_commands_for_one_model_refuse_an_ensemble(trained, tmp_path, capsys, data):
    before = sorted(tmp_path.rglob("*"))
    _, err = command(capsys, "explore", trained, "--no-browser", code=2)
    assert "is an ensemble, and the explorer shows one model" in err
    with pytest.raises(RegardError, match="is an ensemble, and int8 runs single models only"):
        quantize(trained, tmp_path / "int8", held_out=[("ab", "ba")])
    _, err = command(capsys, "export", trained, "--to", "onnx", "--out", tmp_path / "x", code=2)
    assert "is an ensemble, and export takes one model" in err
    words = arguments(data, tmp_path / "tuned", "--steps", "2", "--from", trained)
    _, err = command(capsys, *words, code=2)
    assert "is an ensemble; fine-tune one of its seeds" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_ensembles_are_checked_without_building_them(trained, tmp_path):
    loaded = bundle.load(trained / "bundle")
    assert isinstance(loaded.settings, EnsembleSettings)
    assert model_files._check_weights(loaded, loaded.folder, loaded.weights) == set()
    fewer = loaded.settings.model_copy(update={"members": loaded.settings.members[:1]})
    parts = loaded.source, loaded.target, fewer, loaded.card
    with pytest.raises(RegardError, match=r"'members\.1\..*' belongs to another model"):
        bundle.save(tmp_path / "bad", bundle.Bundle(loaded.model, *parts))


def test_another_run_is_not_overwritten(tmp_path, data, capsys):
    home = tmp_path / "run"
    command(capsys, *arguments(data, home, *FEW))
    weights = (home / "bundle/weights.safetensors").read_bytes()
    for more in ((), ("--distill",)):
        _, err = command(capsys, *arguments(data, home, *FEW, "--seeds", "2", *more), code=2)
        assert "is the folder of another run, whose bundle would be lost" in err
    assert (home / "bundle/weights.safetensors").read_bytes() == weights
    assert not (home / "seed-1").exists()
    _, err = command(capsys, *arguments(data, tmp_path / "other", *FEW, "--distill"), code=2)
    assert "--distill needs --seeds N" in err


def test_one_model_is_distilled_from_the_seeds(tmp_path, data, capsys):
    some = ("--steps", "60", *FEW[2:])  # an untrained ensemble of both directions says nothing
    words = arguments(data, tmp_path / "run", *some, "--seeds", "2", "--distill")
    out, _ = command(capsys, *words)
    names = [line.split("  ")[1].strip() for line in out.splitlines()[1:6]]
    assert names == ["seed 1", "seed 2, reversed", "mean ± spread", "ensemble", "distilled"]
    assert "  reversed: generates targets from the last token to the first\n" in out
    student = regard.load(tmp_path / "run")
    assert not isinstance(student.model, Ensemble)
    single = regard.load(tmp_path / "run/seed-1")
    assert student.bundle.settings == single.bundle.settings
    facts = student.bundle.card["distillation"]
    assert facts["teachers"] == [str(tmp_path / f"run/seed-{seed}/bundle") for seed in (1, 2)]
    both = regard.load([tmp_path / "run/seed-1", tmp_path / "run/seed-2"])
    taught = (tmp_path / "run/teacher" / TRAINING_PAIRS).read_text().splitlines()
    rows = map(json.loads, taught)
    pairs_taught = {row["source"]: row["target"] for row in rows}
    assert len(pairs_taught) > 50
    for answer in both.many(list(pairs_taught)[:20]):
        assert answer.text == pairs_taught[answer.source]
    again, _ = command(capsys, *words)  # resumes: nothing is trained or decoded again
    assert again == out
    command(capsys, *words, "--restart")
