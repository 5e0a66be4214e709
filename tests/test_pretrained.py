"""The pretrained models: complete, small, and as accurate as their cards state."""

import json

import pytest

import regard
from regard.errors import RegardError
from regard.pretrained import MODELS, resolve_model
from regard.text import Corpus, group_references
from regard.training import cmudict as demo
from regard.training import metrics

NAMES = sorted(path.name for path in MODELS.iterdir())


def test_both_families_are_included():
    assert [regard.load(name, device="cpu").bundle.settings.kind for name in NAMES] == [
        "transformer",
        "recurrent",
    ]
    assert sum(path.stat().st_size for path in MODELS.rglob("*")) < 10e6


@pytest.mark.parametrize("name", NAMES)
def test_accuracy_matches_the_card(name, tmp_path):
    """On every sixteenth word of the test set; benchmarks/pretrained.py measures all of it."""
    questions = group_references(Corpus(demo.unpack(tmp_path)["test"]))
    words = list(questions)[::16]
    t = regard.load(name, device="cpu", long="allow")
    outputs = [answer.text for answer in t.many(words, t.search(beam=1))]
    found = metrics.error_rates("phones", outputs, [questions[word] for word in words])
    tested = t.bundle.card["tested"]
    assert found["phone_error_rate"] == pytest.approx(tested["phone_error_rate"], abs=2.0)
    assert found["sequence_error_rate"] == pytest.approx(tested["sequence_error_rate"], abs=6.0)


@pytest.mark.parametrize("name", NAMES)
def test_cards_contain_no_paths(name):
    card = json.loads((MODELS / name / "card.json").read_text())
    assert "/" not in json.dumps(card["data"]) + json.dumps(card["decisions"])
    assert card["quality"][0]["on"] == "6,456 unseen test words"


def test_included_models_may_be_links_of_an_installer(tmp_path, monkeypatch):
    folder = tmp_path / "package/models/linked"
    folder.mkdir(parents=True)
    for path in (MODELS / "spelling").iterdir():
        (folder / path.name).symlink_to(path)
    for engine in ("native", "torch"):
        with pytest.raises(RegardError, match="is a link; a bundle has regular files only: copy"):
            regard.load(folder, device="cpu", engine=engine)
    monkeypatch.setattr("regard.bundle.regular_files.PACKAGE", tmp_path / "package")
    for engine in ("native", "torch"):
        assert str(regard.load(folder, device="cpu", engine=engine)("noise")) == "N OY Z"


def test_existing_folder_takes_precedence(tmp_path, monkeypatch):
    assert resolve_model("spelling") == MODELS / "spelling"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spelling").mkdir()
    assert str(resolve_model("spelling")) == "spelling"
    assert str(resolve_model("../models")) == "../models"
    assert str(resolve_model("data")) == "data"
    with pytest.raises(RegardError, match=r"^no bundle at 'speling'; pass a folder"):
        regard.load("speling", device="cpu")
