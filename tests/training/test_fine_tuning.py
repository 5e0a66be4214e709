"""Fine-tuning: weights and tokenizers of a bundle, new symbols, and frozen parameters."""

import pytest
import torch

import regard
from regard import bundle
from regard.bundle.model_files import unique_parameters
from regard.errors import RegardError
from regard.text import train_tokenizer
from regard.training.cmudict import dictionary
from regard.training.fine_tuning import adapt_tokenizer
from tests.commands.small import Quiet, pairs, written
from tests.commands.small import regard as command

OLD = pairs(150, seed=1)
NEW = [(s.replace("a", "ä"), t.replace("a", "ä")) for s, t in pairs(150, seed=2)]
TINY = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 16}
RUN = {"steps": 4, "batch_tokens": 192, "evaluations": 1}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run on the letters a to d."""
    out = tmp_path_factory.mktemp("first")
    regard.train(OLD, out, **TINY, **RUN, display=Quiet())
    return out


def test_new_symbols_are_added_and_reported():
    tokenizer = train_tokenizer("characters", ["abc"])
    extended, printed = adapt_tokenizer(tokenizer, ["abä", "ää"], "source", extend=True)
    assert printed == (
        "source tokenizer: characters of the initial model, covers 40.00 % of the characters; "
        "1 new ones are added: ä"
    )
    assert extended.encode("abc") == tokenizer.encode("abc")
    assert extended.decode(extended.encode("äba")) == "äba"
    kept, printed = adapt_tokenizer(tokenizer, ["abä"], "source", extend=False)
    assert kept is tokenizer
    assert printed.endswith("1 stay unknown: ä")
    subwords = train_tokenizer("bytes", ["abc"])
    assert adapt_tokenizer(subwords, ["ä"], "target", extend=True)[0] is subwords


def test_the_run_starts_from_the_weights_of_the_bundle(tmp_path, first):
    view = Quiet()
    still = {**RUN, "learning_rate": 1e-12, "weight_decay": 0.0}
    regard.train(NEW, tmp_path / "run", init=first, **still, display=view)
    old = unique_parameters(bundle.load(first / "bundle").model)
    new = unique_parameters(bundle.load(tmp_path / "run/bundle").model)
    assert old.keys() == new.keys()
    grown = []
    for name, weight in old.items():
        torch.testing.assert_close(new[name][: len(weight)], weight, atol=1e-6, rtol=0)
        grown += [name] if len(new[name]) > len(weight) else []
    assert grown
    made = bundle.load(tmp_path / "run/bundle")
    assert len(made.source) == len(bundle.load(first / "bundle").source) + 1
    assert any("1 new ones are added: ä" in line for line in view.lines)


def test_frozen_parameters_do_not_change(tmp_path, first):
    made = regard.train(
        OLD, tmp_path / "run", init=first, freeze=["encoder.*"], **RUN, display=Quiet()
    )
    before = unique_parameters(bundle.load(first / "bundle").model)
    after = unique_parameters(made.bundle.model)
    same = {name for name in before if torch.equal(before[name], after[name].cpu())}
    assert same == {name for name in before if name.startswith("encoder.")}
    assert same


def test_defaults_are_gentle(tmp_path, first):
    tuned = regard.train(OLD, tmp_path / "run", init=first, evaluations=1, display=Quiet())
    train = tuned.bundle.card["settings"]["train"]
    # 0.3 of the usual 7e-3 · √(64 / 16), for 10 epochs.
    assert (train["learning_rate"], train["epochs"]) == (pytest.approx(4.2e-3), 10)
    assert train["batch_tokens"] == 512


def test_a_harmful_run_returns_the_initial_model(tmp_path):
    words = list(dictionary())[::4000]
    harmful = {"steps": 2, "learning_rate": 1.0, "evaluations": 1}
    tuned = regard.train(
        words, tmp_path / "run", init="spelling", held_out=words, **harmful, display=Quiet()
    )
    initial = unique_parameters(regard.load("spelling").model)
    for name, weight in unique_parameters(tuned.model).items():
        torch.testing.assert_close(weight.cpu(), initial[name].cpu(), atol=0, rtol=0)
    assert tuned.bundle.card["steps"] == 0


def test_the_command_fine_tunes(tmp_path, first, capsys):
    data = written(tmp_path / "new.tsv", NEW)
    words = ["train", data, "--out", tmp_path / "run", "--from", first, "--steps", "2"]
    _, printed = command(capsys, *words, "--freeze", "source.*")
    assert "source tokenizer: characters of the initial model, covers " in printed
    _, printed = command(capsys, "train", data, "--out", tmp_path / "run", "--steps", "2", code=2)
    assert "the data were prepared with other settings: the initial model was " in printed
    other = [*words[:3], tmp_path / "other", *words[4:]]
    _, printed = command(capsys, *other, "--freeze", "decodr.*", code=2)
    assert "--freeze 'decodr.*' matches no parameter; choose from " in printed
    _, printed = command(capsys, *other, "--size", "small", code=2)
    assert printed == "regard: --size small is fixed by the initial model; leave it out\n"


def test_another_model_size_is_refused(tmp_path, first):
    with pytest.raises(RegardError, match=r"differs; leave out settings of the model's family"):
        regard.train(OLD, tmp_path / "run", init=first, width=32, **RUN, display=Quiet())
