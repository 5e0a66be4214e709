"""Templates of tokenizer files from other projects, for models that are trained with them.

A folder names its special tokens in tokenizer_config.json or special_tokens_map.json. A file alone
has only its special tokens, which are recognised by the usual names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.text.template import DEFAULT_TEMPLATE, Template
from regard.text.tokenizers import Tokenizer, TokenizerError

TOKENIZER_FILE = "tokenizer.json"
NAMING_FILES = ("special_tokens_map.json", "tokenizer_config.json")
MAX_BYTES = 1 << 26
USUAL_NAMES = {
    "eos_token": ("</s>", "<eos>", "[EOS]", "<|endoftext|>", "[SEP]"),
    "bos_token": ("<s>", "<bos>", "[BOS]", "[CLS]"),
    "pad_token": ("<pad>", "[PAD]"),
}


def load_foreign(path: Path) -> tuple[Tokenizer, Template]:
    """The tokenizer of a file, or of a folder with a tokenizer.json, and the template of models
    that are trained with it: sources and targets end with its end token."""
    file = path / TOKENIZER_FILE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise TokenizerError(f"{str(path)!r} has no {TOKENIZER_FILE}; give a folder with one")
    tokenizer = Tokenizer.load(file)
    if not tokenizer.is_foreign:
        return tokenizer, DEFAULT_TEMPLATE
    named = _named_tokens(file.parent) if path.is_dir() else {}
    ids = {role: _find(tokenizer, role, named) for role in USUAL_NAMES}
    end = ids["eos_token"]
    if end is None:
        names = ", ".join(USUAL_NAMES["eos_token"])
        raise TokenizerError(
            f"{str(file)!r} has no end token: none of {names} is in it; name it as eos_token in "
            f"{NAMING_FILES[0]}"
        )
    start = next(one for one in (ids["bos_token"], ids["pad_token"], end) if one is not None)
    unknown = start if tokenizer.unknown is None else tokenizer.unknown
    return tokenizer, Template(unknown=unknown, end=end, start=(start,), source_suffix=(end,))


def _named_tokens(folder: Path) -> dict[str, str]:
    """The special tokens that a folder names, by role."""
    found: dict[str, str] = {}
    for name in NAMING_FILES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            if path.stat().st_size > MAX_BYTES:
                raise TokenizerError(f"{str(path)!r} is larger than {MAX_BYTES:,} bytes")
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            raise TokenizerError(f"{str(path)!r} is not valid JSON; copy it again") from None
        for role in USUAL_NAMES:
            if isinstance(values, dict) and (token := _token_text(values.get(role))):
                found.setdefault(role, token)
    return found


def _token_text(value: Any) -> str | None:
    """The text of a token: a string, or an object with its content."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None


def _find(tokenizer: Tokenizer, role: str, named: dict[str, str]) -> int | None:
    names = (named[role],) if role in named else USUAL_NAMES[role]
    ids = (tokenizer.library.token_to_id(name) for name in names)
    return next((int(id) for id in ids if id is not None), None)
