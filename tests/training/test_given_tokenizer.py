"""Training with a tokenizer.json of another project, and with the languages of a template."""

import json
import shutil

import pytest

import regard
from regard import bundle
from regard.errors import RegardError
from regard.text import Template, Tokenizer
from regard.text.foreign_templates import load_foreign
from tests.commands.small import Quiet, pairs, written
from tests.commands.small import regard as command
from tests.text.foreign_tokenizers import save_style

PAIRS = [(f"the cat {one}", f"{two} sat") for one, two in pairs(60, seed=4)]
TINY = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_width": 16}
RUN = {"steps": 3, "batch_tokens": 192, "evaluations": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as of a BART model."""
    made = tmp_path_factory.mktemp("tokenizer")
    save_style("byte-level", made)
    names = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": "<pad>"}
    (made / "special_tokens_map.json").write_text(json.dumps(names))
    return made


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    view = Quiet()
    pipeline = regard.train(PAIRS, out, tokenizer=folder, **TINY, **RUN, display=view)
    return out, pipeline, view


def test_a_run_uses_the_tokenizer_on_both_sides(trained, folder):
    out, pipeline, view = trained
    expected = Tokenizer.load(folder / "tokenizer.json")
    made = bundle.load(out / "bundle")
    assert made.source is made.target
    assert made.source.fingerprint == expected.fingerprint
    assert made.template == Template(unknown=3, end=2, start=(0,), source_suffix=(2,))
    assert any("of the given tokenizer" in line for line in view.lines)
    answer = pipeline("the cat abc", max_length=6)
    assert answer.text == expected.decode(answer.ids)
    assert pipeline.score("the cat", "sat").logps[-1] < 0


def test_the_same_call_resumes(trained, folder):
    out, _, _ = trained
    before = (out / "bundle" / "manifest.json").read_bytes()
    regard.train(PAIRS, out, tokenizer=folder, **TINY, **RUN, display=Quiet())
    assert (out / "bundle" / "manifest.json").read_bytes() == before
    with pytest.raises(RegardError, match=r"the given tokenizer was .* and is None"):
        regard.train(PAIRS, out, **TINY, **RUN, display=Quiet())


def test_a_trained_bundle_can_be_fine_tuned(trained, tmp_path):
    out, _, _ = trained
    regard.train(PAIRS, tmp_path / "tuned", init=out, **RUN, display=Quiet())
    tuned = bundle.load(tmp_path / "tuned" / "bundle")
    assert tuned.template == bundle.load(out / "bundle").template
    assert tuned.source.is_foreign


def test_special_tokens_of_files(folder, tmp_path):
    alone = tmp_path / "any.json"
    shutil.copy(folder / "tokenizer.json", alone)
    assert load_foreign(alone)[1] == Template(unknown=3, end=2, start=(0,), source_suffix=(2,))
    _, t5 = load_foreign(save_style("sentencepiece", tmp_path))
    assert t5 == Template(unknown=2, end=1, start=(0,), source_suffix=(1,))
    names = {"eos_token": "<mask>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(names))
    shutil.copy(alone, tmp_path / "tokenizer.json")
    assert load_foreign(tmp_path)[1].end == 4


def test_tokenizers_without_an_end_are_refused(folder, tmp_path):
    document = json.loads((folder / "tokenizer.json").read_text())
    document["added_tokens"] = []
    for name in ("</s>", "<s>"):
        document["model"]["vocab"].pop(name)
    document["post_processor"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(RegardError, match=r"has no end token: none of </s>, .* name it as eos"):
        load_foreign(tmp_path)
    with pytest.raises(RegardError, match=r"' has no tokenizer.json; give a folder with one"):
        load_foreign(folder.parent)


def test_only_one_source_of_tokenizers(trained, folder, tmp_path):
    out, _, _ = trained
    with pytest.raises(RegardError, match="init and tokenizer name different tokenizers"):
        regard.train(PAIRS, tmp_path / "x", init=out, tokenizer=folder, display=Quiet())


def test_fine_tuning_takes_languages(trained, tmp_path):
    made = bundle.load(trained[0] / "bundle")
    template = Template(
        unknown=3, end=2, start=(2, 4), source_suffix=(2,), languages={"deu": 4, "fra": 5}
    )
    parts = made.model, made.source, made.target, made.settings, made.card
    bundle.save(tmp_path / "many", bundle.Bundle(*parts, template=template))
    options = {"init": tmp_path / "many", **RUN, "display": Quiet()}
    regard.train(PAIRS, tmp_path / "run", target_language="fra", **options)
    assert bundle.load(tmp_path / "run" / "bundle").template.start == (2, 5)
    with pytest.raises(RegardError, match="unknown target language 'x'; choose from deu, fra"):
        regard.train(PAIRS, tmp_path / "other", target_language="x", **options)


def test_command_takes_a_tokenizer_and_languages(folder, tmp_path, capsys):
    data = written(tmp_path / "pairs.tsv", PAIRS)
    given = ["train", data, "--out", tmp_path / "run", "--tokenizer", folder, "--steps", 2]
    sizes = [part for name, value in TINY.items() for part in ("--set", f"model.{name}={value}")]
    command(capsys, *given, *sizes)
    assert bundle.read(tmp_path / "run" / "bundle").template.start == (0,)
    given[3] = tmp_path / "other"
    _, printed = command(capsys, *given, *sizes, "--target-language", "deu", code=2)
    assert "this model has no token for the target language" in printed
