"""What the export formats share: the result of a conversion, and the tokenizer files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.bundle import Bundle
from regard.bundle.manifest import SHARED, SOURCE, TARGET


@dataclass(frozen=True)
class Conversion:
    """A converted model in a temporary folder: how it was verified, and its README.md."""

    facts: dict[str, Any]
    readme: str


# From a bundle, the folder to write, texts that verify the result, and whether to quantise to int8.
Converter = Callable[[Bundle, Path, Sequence[str], bool], Conversion]


def has_shared_tokenizer(bundle: Bundle) -> bool:
    """Whether source and target have the same tokenizer."""
    return bundle.source.fingerprint == bundle.target.fingerprint


def tokenizer_files(bundle: Bundle) -> tuple[str, str]:
    """The names of the tokenizer files of source and target."""
    return (SHARED, SHARED) if has_shared_tokenizer(bundle) else (SOURCE, TARGET)


def save_tokenizers(bundle: Bundle, folder: Path) -> None:
    """Write the tokenizers as they are."""
    for tokenizer, name in zip(
        (bundle.source, bundle.target), tokenizer_files(bundle), strict=True
    ):
        tokenizer.save(folder / name)


def compose_note(bundle: Bundle) -> str:
    """The sentence on decomposed outputs, if there are any."""
    if not bundle.target.is_decomposed:
        return ""
    return (
        "Tokens are letters, marks and jamo: compose an output with "
        '`unicodedata.normalize("NFC", text)`. '
    )


def limit_note(longest: int | None) -> str:
    """The sentence on the maximum length of a side, if there is one."""
    return "" if longest is None else f"A side may have at most {longest:,} tokens. "
