"""Every family of Hugging Face models, tiny and random: the copy computes the same."""

import json
from pathlib import Path

import pytest
import torch

import regard
from benchmarks.interchange_imports import (
    compare_search,
    largest_difference,
    random_sources,
    search_texts,
)
from benchmarks.interchange_models import NAMES, SIZES
from regard.bundle import Bundle
from regard.hub.checkpoint_folder import HuggingFaceError
from regard.hub.hf_import import import_checkpoint
from tests.commands.small import regard as command
from tests.hub.hf_folders import hf_folder
from tests.native_build import require_native_engine

SIZE = {name: number % len(SIZES) for number, name in enumerate(NAMES)}  # of the longer tests


def skip_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.hub.hf_import.verify_import", lambda *_: {"check": "none"})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_original(name: str, size: int, tmp_path: Path, monkeypatch):
    skip_verification(monkeypatch)
    folder, original = hf_folder(tmp_path / "model", name, size)
    made = import_checkpoint(folder)
    assert largest_difference(made, original, random_sources(made, 3)) <= 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_generate(name: str, tmp_path: Path):
    require_native_engine()
    folder, original = hf_folder(tmp_path / "model", name, SIZE[name])
    regard.import_model(folder, tmp_path / "out")
    pipelines = [regard.load(tmp_path / "out", engine=engine) for engine in ("torch", "native")]
    made = pipelines[0].bundle
    assert made.card["import"]["largest_difference"] <= 1e-4
    sources = random_sources(made, 30)  # benchmarks/interchange.py takes 100
    for beam in (1, 4):
        for counts in compare_search(made, original, sources, pipelines, beam=beam):
            assert counts.outputs == len(sources)
            assert counts.different == 0
            assert counts.close <= len(sources) // 4


def test_a_folder_is_imported_once_where_a_bundle_is_expected(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, _ = hf_folder(tmp_path / "model", "t5", 1)
    first = regard.load(f"hf:{folder}", engine="torch")
    assert "importing" in capsys.readouterr().err
    outputs = search_texts(first, random_sources(first.bundle, 5), 1, 0.0)
    printed, error = command(capsys, "predict", f"hf:{folder}", "w7 w9", "--engine", "torch")
    assert "importing" not in error
    assert printed.splitlines() == [str(first("w7 w9"))]
    printed, _ = command(capsys, "inspect", f"hf:{folder}")
    assert "import" in printed
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "dropout_rate": 0.2}))
    again = regard.load(f"hf:{folder}", engine="torch")
    assert "importing" in capsys.readouterr().err
    assert again.bundle.settings.dropout == 0.2
    assert search_texts(again, random_sources(first.bundle, 5), 1, 0.0) == outputs


def test_the_command_reports_the_check(tmp_path: Path, capsys):
    folder, _ = hf_folder(tmp_path / "model", "bart", 1)
    printed, error = command(capsys, "import", str(folder), str(tmp_path / "out"))
    facts = json.loads((tmp_path / "out/card.json").read_text())["import"]
    assert facts["check"].startswith("transformers 5")
    assert f"{facts['texts']} texts: logits differ from transformers" in printed
    assert "no output differs" in printed
    assert "importing" in error
    readme = (tmp_path / "out/README.md").read_text()
    assert "imported from the Hugging Face model model. Loading it runs no code" in readme
    assert f"logits differ by at most {facts['largest_difference']:.1e}" in readme


def test_a_changed_copy_is_not_written(tmp_path: Path, monkeypatch):
    folder, _ = hf_folder(tmp_path / "model", "mt5", 1)

    def altered(*arguments: object) -> object:
        made = build(*arguments)
        with torch.no_grad():
            made.decoder[0].feed_forward.outer.weight[0, 0] += 0.01
        return made

    from regard.hub.hf_import import build_model as build

    monkeypatch.setattr("regard.hub.hf_import.build_model", altered)
    with pytest.raises(HuggingFaceError, match="the copy differs from the original, logits by up"):
        regard.import_model(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_transformers_outputs_must_be_finite(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("regard.hub.import_verification.find_spec", lambda name: None)
    folder, original = hf_folder(tmp_path / "model", "pegasus", 1)
    made: Bundle = import_checkpoint(folder)
    assert made.card["import"]["check"] == "finite outputs; transformers is not installed"
    assert largest_difference(made, original, random_sources(made, 2)) <= 1e-4


def test_banned_tokens_are_those_of_the_configuration(tmp_path: Path, monkeypatch):
    skip_verification(monkeypatch)
    folder, _ = hf_folder(tmp_path / "model", "marian", 1)
    path = folder / "generation_config.json"
    changes = {"bad_words_ids": [[36], [5], [7, 8]], "suppress_tokens": [6], "num_beams": 6}
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    made = import_checkpoint(folder)
    assert made.template.banned == (5, 6, 36)
    assert made.card["import"]["generation"]["num_beams"] == 6
    assert any("1 bad words of several tokens" in note for note in made.card["import"]["notes"])
