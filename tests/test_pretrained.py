"""The pretrained models: complete, small, and as accurate as their cards state."""

import json
from pathlib import Path

import pytest

import regard
from regard.bundle.film_files import find_film
from regard.errors import RegardError
from regard.explore.model_store import ModelStore, ServedModel
from regard.pretrained import MODELS, resolve_model
from regard.text import Corpus, group_references
from regard.training import cmudict as demo
from regard.training import metrics

NOTICE = Path(__file__).parents[1] / "NOTICE"
NAMES = sorted(path.name for path in MODELS.iterdir() if path.is_dir())
SPELLING = ["spelling", "spelling-recurrent"]
TRANSLATION = ["english-german", "english-german-recurrent"]
SENTENCES = {  # translated by hand; what a learner's first lesson has
    "Good night!": {"Gute Nacht!"},
    "I am hungry.": {"Ich habe Hunger.", "Ich bin hungrig."},
    "Where is the station?": {"Wo ist der Bahnhof?"},
    "She is reading a book.": {"Sie liest ein Buch.", "Sie liest gerade ein Buch."},
    "The dog is sleeping.": {"Der Hund schläft.", "Der Hund schläft gerade."},
    "We have two children.": {"Wir haben zwei Kinder."},
    "What are you doing?": {"Was machst du?", "Was machen Sie?", "Was macht ihr?", "Was tust du?"},
    "I like coffee.": {"Ich mag Kaffee."},
}


def test_both_families_of_both_tasks_are_included():
    kinds = {name: regard.load(name, device="cpu").bundle.settings.kind for name in NAMES}
    assert kinds == dict.fromkeys(["english-german", "spelling"], "transformer") | dict.fromkeys(
        ["english-german-recurrent", "spelling-recurrent"], "recurrent"
    )
    assert sum(path.stat().st_size for path in MODELS.rglob("*")) < 20e6


@pytest.mark.parametrize("names", [SPELLING, TRANSLATION])
def test_models_of_a_task_share_their_tokenizers(names):
    one, other = (
        {path.name: path.read_bytes() for path in (MODELS / name).glob("*.tokenizer.json")}
        for name in names
    )
    assert one
    assert one == other


@pytest.mark.parametrize("name", TRANSLATION)
def test_translation_of_simple_sentences(name):
    """benchmarks/pretrained.py measures BLEU on the test set."""
    pipeline = regard.load(name, device="cpu")
    outputs = {source: pipeline(source).text for source in SENTENCES}
    wrong = {source: text for source, text in outputs.items() if text not in SENTENCES[source]}
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize("name", TRANSLATION)
def test_the_data_of_translation_are_attributed(name):
    card, notice = json.loads((MODELS / name / "card.json").read_text()), NOTICE.read_text()
    for text in (card["attribution"], (MODELS / name / "README.md").read_text(), notice):
        assert "Tatoeba" in text
        assert "CC BY 2.0 FR" in text
    assert name in notice


def test_a_film_is_included():
    """Of the weights that are beside it, and it ends with right outputs."""
    found = {name: find_film(MODELS / name) for name in NAMES}
    name = "english-german-recurrent"
    assert {one for one, path in found.items() if path} == {name}
    film = ServedModel(MODELS / name).film
    assert len(film.describe()["steps"]) >= 40
    assert film.markers()


@pytest.mark.parametrize("name", SPELLING)
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
    assert card["quality"][0]["on"] in (
        "6,456 unseen test words",
        "9,911 sentences of the Tatoeba test set v2020-07-28",
    )


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


def test_misspelt_name_of_a_model_is_corrected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fix = "pass a folder written by `regard train`, or an included model"
    for open_model in (
        lambda name: regard.load(name, device="cpu"),
        lambda name: ModelStore.open([Path(name)]),
    ):
        with pytest.raises(RegardError) as error:
            open_model("speling")
        assert str(error.value) == f"no bundle at 'speling'; {fix}: did you mean 'spelling'?"
        with pytest.raises(RegardError, match=r"choose from 'english-german', .*'spelling-rec"):
            open_model("zzz")
        with pytest.raises(RegardError, match=r"^no bundle at 'a/speling'; [^,]*$"):
            open_model("a/speling")
