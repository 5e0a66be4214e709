"""Import of a Hugging Face folder as a bundle, without running code from it.

>>> bundle = import_checkpoint("opus-mt-en-de")
>>> bundle.card["import"]["largest_difference"]
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import torch

from regard.bundle import Bundle
from regard.bundle.model_files import find_mismatch, shapes, unique_parameters
from regard.config import ModelSettings, parse
from regard.hub.checkpoint_config import CheckpointConfig
from regard.hub.checkpoint_families import find_family
from regard.hub.checkpoint_folder import CheckpointFolder
from regard.hub.checkpoint_tensors import CheckpointTensors, ConvertedCheckpoint
from regard.hub.import_template import ChosenLanguages, complete_template
from regard.hub.import_verification import verify_import
from regard.hub.tokenizer_conversion import tokenizer_documents
from regard.hub.tokenizer_documents import Document
from regard.hub.tokenizer_files import TokenizerFiles
from regard.models import Model, build
from regard.text.template import TemplateError
from regard.text.tokenizers import Tokenizer, TokenizerError

GENERATION = (  # recommended decoding options that the card lists
    "num_beams",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "repetition_penalty",
    "early_stopping",
)
EXPORTED_TASKS = ("phones", "characters", "symbols", "tokens")
MOSES = (
    "FSMT expects texts that the Moses tokenizer has split; split them before and join them after"
)


def import_checkpoint(
    folder: str | os.PathLike[str],
    *,
    languages: ChosenLanguages | None = None,
    texts: Sequence[str] = (),
    name: str | None = None,
) -> Bundle:
    """The bundle of a Hugging Face folder, in memory; verified with `texts` and its own ones.

    `name` is what the card calls the model, if not the folder.
    """
    home = CheckpointFolder(folder)
    config = CheckpointConfig.read(home)
    family, convert = find_family(config)
    tensors = CheckpointTensors(home)
    converted = convert(config, tensors)
    files = TokenizerFiles(home, converted.sizes)
    definitions = tokenizer_documents(files, family)
    source, target = _tokenizers(home, definitions, converted.sizes)
    try:
        template = complete_template(
            converted.template,
            family,
            files,
            definitions[0],
            source,
            languages or ChosenLanguages(),
        )
        template.check_sizes(*converted.sizes)
    except TemplateError as error:
        raise home.error(str(error)) from None
    model = build_model(converted)
    settings = parse(ModelSettings, converted.settings, "model")
    card = _card(converted, model, name or home.home.name) | _exported_facts(home)
    bundle = Bundle(model, source, target, settings, card, template=template)
    facts = {"family": family, "model": card["title"], "tensors": len(home.shapes)}
    facts |= verify_import(bundle, home.name, texts)
    notes = _notes(config, family, bundle, facts)
    generation = config.generation(GENERATION)
    imported = {**facts, "generation": generation, "notes": notes}
    return bundle.with_card({**card, "import": imported, "decisions": notes})


def build_model(converted: ConvertedCheckpoint) -> Model:
    """The model of a converted checkpoint, in eval mode."""
    settings = parse(ModelSettings, converted.settings, "model")
    with torch.random.fork_rng(devices=[]):
        model = build(settings, *converted.sizes)
    parameters = unique_parameters(model)
    mismatch = find_mismatch(shapes(parameters), shapes(converted.weights))
    assert mismatch is None, mismatch
    for name, parameter in parameters.items():
        parameter.data = converted.weights[name]
    return model.eval()


def _tokenizers(
    home: CheckpointFolder, definitions: tuple[Document, Document], sizes: tuple[int, int]
) -> tuple[Tokenizer, Tokenizer]:
    """Source and target; one object if definition and size are the same."""
    try:
        source, target = (
            Tokenizer.from_json(json.dumps(one)).with_size(size)
            for one, size in zip(definitions, sizes, strict=True)
        )
    except TokenizerError as error:
        raise home.error(f"its tokenizer cannot be used: {error}") from None
    same = definitions[0] is definitions[1] and sizes[0] == sizes[1]
    return source, source if same else target


def _card(converted: ConvertedCheckpoint, model: Model, title: str) -> dict[str, Any]:
    parameters = sum(parameter.numel() for parameter in unique_parameters(model).values())
    card: dict[str, Any] = {"title": title, "task": "text", "parameters": parameters}
    position = converted.settings["position"]
    if position["kind"] == "learned":
        most, template = position["max_length"], converted.template
        card["longest"] = {
            "source": max(1, most - template.source_tokens - 1),
            "target": max(0, (most - len(template.start) - 12) // 2),  # outputs: 2 · this + 10
        }
    return card


def _exported_facts(home: CheckpointFolder) -> dict[str, Any]:
    """The task of a model that `regard export` wrote; the default search depends on it."""
    task = (home.read_json("card.json") or {}).get("task")
    return {"task": task} if task in EXPORTED_TASKS else {}


def _notes(
    config: CheckpointConfig, family: str, bundle: Bundle, facts: dict[str, Any]
) -> list[str]:
    """What a user of the model must know, in sentences."""
    template, notes = bundle.template, [f"imported from a Hugging Face model of family {family}"]
    codes = {id: code for code, id in template.languages.items()}
    around = (*template.source_prefix, *template.source_suffix)
    chosen = [
        next((codes[id] for id in ids if id in codes), None) for ids in (around, template.start)
    ]
    if template.languages:
        pair = [code for code in chosen if code is not None]
        what = (
            "languages" if len(pair) == 2 else "target language"
        )  # OPUS-MT names it in the source
        notes.append(f"{what}: {' → '.join(pair)}")
    if family == "fsmt":
        notes.append(MOSES)
    if count := config.long_bad_words():
        notes.append(f"{count} bad words of several tokens are not banned; use --ban for them")
    equal, texts = facts.get("equal_tokenizations"), facts.get("tokenized_texts")
    if equal is not None and equal != texts and family != "fsmt":
        notes.append(f"{equal} of {texts} texts have the same tokens as in transformers")
    return notes
