"""Tokenizer files of tiny Hugging Face folders: whole words, so that text can name any id."""

import json
from pathlib import Path
from typing import Any

SPECIAL = {"pad_token_id": "<pad>", "bos_token_id": "<s>", "eos_token_id": "</s>"}


def write_tokenizer(folder: Path, size: int, tokens: dict[str, int]) -> None:
    """Write a tokenizer.json with `size` words: the text of id 7 is w7."""
    names = {id: f"w{id}" for id in range(size)}
    names |= {tokens[role]: name for role, name in SPECIAL.items() if tokens.get(role) is not None}
    free = next((id for id in range(size) if id not in tokens.values()), 0)
    names[free] = "<unk>"
    definition: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {name: id for id, name in names.items()},
            "unk_token": "<unk>",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(definition))
