"""Tokenizer files for `transformers`: tokenizer.json with special tokens, and its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.bundle import Bundle
from regard.bundle.manifest import write_json
from regard.hub.checkpoint_layout import padding_token
from regard.hub.conversion import has_shared_tokenizer
from regard.text.tokenizers import Tokenizer

TARGET_FOLDER = "target"


def write_hf_tokenizers(bundle: Bundle, folder: Path, longest: int | None) -> None:
    """Write the tokenizer; that of the target to a folder of its own where it is another."""
    template = bundle.template
    around = template.source_prefix, template.source_suffix
    _write(bundle, bundle.source, folder, around, longest)
    if not has_shared_tokenizer(bundle):
        (folder / TARGET_FOLDER).mkdir()
        ending = (), (template.end,)
        _write(bundle, bundle.target, folder / TARGET_FOLDER, ending, longest)


def _write(
    bundle: Bundle,
    tokenizer: Tokenizer,
    folder: Path,
    around: tuple[tuple[int, ...], tuple[int, ...]],
    longest: int | None,
) -> None:
    template = bundle.template
    ids = {
        "unk_token": template.unknown,
        "bos_token": template.start[0],
        "eos_token": template.end,
        "pad_token": padding_token(bundle),
    }
    if tokenizer is not bundle.target and not has_shared_tokenizer(bundle):
        # Ids of the target vocabulary need not mean the same in that of the source.
        ids = {name: id for name, id in ids.items() if id < len(tokenizer)}
    names = {name: tokenizer.token(id) for name, id in ids.items()}
    document = json.loads(tokenizer.library.to_str())
    special = {*ids.values(), *around[0], *around[1], *template.languages.values()}
    document |= {
        "added_tokens": _added(document, tokenizer, special - {template.unknown}),
        "post_processor": _post_processor(tokenizer, *around),
        "padding": None,
        "truncation": None,
    }
    (folder / "tokenizer.json").write_text(
        json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8"
    )
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        **names,
        **({} if longest is None else {"model_max_length": longest}),
    }
    write_json(folder / "tokenizer_config.json", config)


def _added(document: dict[str, Any], tokenizer: Tokenizer, ids: set[int]) -> list[dict[str, Any]]:
    """The added tokens of the file, and those that `decode` is to skip."""
    entries = {entry["id"]: entry for entry in document.get("added_tokens") or []}
    options = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for id in ids:
        if id < len(tokenizer) and id not in entries:
            entries[id] = {"id": id, "content": tokenizer.token(id), **options}
        if id in entries:
            entries[id]["special"] = True
    return [entries[id] for id in sorted(entries)]


def _post_processor(
    tokenizer: Tokenizer, prefix: tuple[int, ...], suffix: tuple[int, ...]
) -> dict[str, Any] | None:
    """Adds the special tokens around a text."""
    if not prefix and not suffix:
        return None
    text = {"Sequence": {"id": "A", "type_id": 0}}
    before, after = (
        [{"SpecialToken": {"id": tokenizer.token(id), "type_id": 0}} for id in ids]
        for ids in (prefix, suffix)
    )
    names = {
        tokenizer.token(id): {
            "id": tokenizer.token(id),
            "ids": [id],
            "tokens": [tokenizer.token(id)],
        }
        for id in (*prefix, *suffix)
    }
    second = {"Sequence": {"id": "B", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [*before, text, *after],
        "pair": [*before, text, second, *after],
        "special_tokens": names,
    }
