"""Fine-tuning of imported models: `--from hf:FOLDER`, with language tokens."""

import json
import random
from pathlib import Path

import torch

import regard
from regard.bundle import load
from regard.model_location import find_model
from regard.pipeline import Pipeline
from tests.commands.small import regard as command
from tests.hub.hf_folders import hf_folder


def pairs(count: int) -> list[tuple[str, str]]:
    """Targets repeat the last word of the source."""
    draw = random.Random(1)
    sources = [
        [f"w{draw.randint(10, 20)}" for _ in range(draw.randint(1, 4))] for _ in range(count)
    ]
    return [(" ".join(words), f"{words[-1]} {words[-1]}") for words in sources]


def accuracy(pipeline: Pipeline, test: list[tuple[str, str]]) -> float:
    found = pipeline.many([source for source, _ in test], beam=1)
    return sum(str(one) == target for one, (_, target) in zip(found, test, strict=True)) / len(test)


def add_language(folder: Path, code: str, id: int) -> None:
    path = folder / "tokenizer.json"
    definition = json.loads(path.read_text())
    vocabulary = definition["model"]["vocab"]
    old = next(name for name, other in vocabulary.items() if other == id)
    vocabulary[code] = vocabulary.pop(old)
    token = {"id": id, "content": code, "special": True, "normalized": False}
    token |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    definition["added_tokens"].append(token)
    path.write_text(json.dumps(definition))


def test_a_marian_model_is_fine_tuned(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, _ = hf_folder(tmp_path / "model", "marian", 1)
    data, test = pairs(150), pairs(180)[150:]
    before = accuracy(regard.load(f"hf:{folder}", engine="torch"), test)
    tuned = regard.train(
        data,
        tmp_path / "run",
        init=f"hf:{folder}",
        steps=25,
        batch_tokens=400,
        learning_rate=0.02,
        evaluations=1,
        device="cpu",
    )
    original = load(find_model(f"hf:{folder}"))
    assert accuracy(tuned, test) > before + 0.4
    assert tuned.bundle.template == original.template
    assert tuned.bundle.source.fingerprint == original.source.fingerprint
    assert tuned.bundle.settings == original.settings
    assert not torch.equal(tuned.model.source.table, original.model.source.table)


def test_languages_are_options_of_training(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, _ = hf_folder(tmp_path / "model", "m2m_100", 0)
    for id, code in ((30, "eng_Latn"), (31, "deu_Latn"), (32, "fra_Latn")):
        add_language(folder, code, id)
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in pairs(60)))
    words = ["train", str(data), "--from", f"hf:{folder}", "--out", str(tmp_path / "run")]
    words += ["--steps", "2", "--source-language", "deu_Latn", "--target-language", "fra_Latn"]
    command(capsys, *words, "--device", "cpu")
    template = load(tmp_path / "run/bundle").template
    assert (template.source_prefix, template.source_suffix) == ((31,), (2,))
    assert template.start == (2, 32)
    assert template.languages == {"eng_Latn": 30, "deu_Latn": 31, "fra_Latn": 32}
