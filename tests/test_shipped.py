"""The models that come with the package are whole, small and as good as their cards say."""

import json

import pytest

import regard
from regard.errors import RegardError
from regard.pretrained import MODELS, located
from regard.text import Corpus, variants
from regard.train import cmudict as demo
from regard.train import metrics

NAMES = sorted(path.name for path in MODELS.iterdir())


def test_there_are_both_families():
    assert [regard.load(name, device="cpu").bundle.settings.kind for name in NAMES] == ["transformer", "recurrent"]
    assert sum(path.stat().st_size for path in MODELS.rglob("*")) < 10e6


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_model_is_as_good_as_its_card_says(name, tmp_path):
    """On every sixteenth word of the test part; the whole part is measured by benchmarks/pretrained.py."""
    questions = variants(Corpus(demo.unpack(tmp_path)["test"]))
    words = list(questions)[::16]
    t = regard.load(name, device="cpu", long="allow")
    said = [answer.text for answer in t.many(words, t.search(beam=1))]
    found = metrics.symbols(said, [questions[word] for word in words], kind=t.bundle.target.kind)
    tested = t.bundle.card["tested"]
    assert found["ser"] == pytest.approx(tested["ser"], abs=2.0)
    assert found["wer"] == pytest.approx(tested["wer"], abs=6.0)


@pytest.mark.parametrize("name", NAMES)
def test_cards_name_no_machine(name):
    card = json.loads((MODELS / name / "card.json").read_text())
    assert "/" not in json.dumps(card["data"]) + json.dumps(card["decisions"])
    assert card["quality"][0]["on"] == "6,456 unseen test words"


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    assert located("spelling") == MODELS / "spelling"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spelling").mkdir()
    assert str(located("spelling")) == "spelling"
    assert str(located("../models")) == "../models"
    assert str(located("data")) == "data"
    with pytest.raises(RegardError, match=r"^there is no bundle 'speling'; give the folder"):
        regard.load("speling", device="cpu")
