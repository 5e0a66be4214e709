"""The files of a bundle: names, checksums, JSON, and the errors for missing or altered files."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from regard.bundle.regular_files import NotRegular, open_regular
from regard.bundle.weights_header import WeightsError, parse_header
from regard.errors import RegardError, no_bundle, read_fix
from regard.strict_json import JsonError, parse_object
from regard.text.tokenizer_limits import MAX_BYTES as MAX_TOKENIZER

WEIGHTS = "weights.safetensors"
CONFIG = "config.json"
CARD = "card.json"
MANIFEST = "manifest.json"
SOURCE = "source.tokenizer.json"
TARGET = "target.tokenizer.json"
SHARED = "shared.tokenizer.json"
TRAINING_SOURCES = "training_sources.safetensors"  # optional
README = "README.md"
MAX_JSON = 1 << 22  # bytes of a JSON file, except tokenizers
MAX_REASON = 300  # characters that an error quotes
BUNDLE_FILES = {WEIGHTS, CONFIG, CARD, SOURCE, TARGET, SHARED, TRAINING_SOURCES, README}


class BundleError(RegardError):
    """A folder that is not a valid bundle, or cannot be saved as one."""


def read_manifest(home: Path) -> dict[str, Any]:
    """The manifest's entry for each file."""
    if not os.path.lexists(home / MANIFEST):
        raise BundleError(no_bundle(home, f"not a bundle: it has no {MANIFEST}"))
    files = read_json(home / MANIFEST).get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise invalid_file(home / MANIFEST, "it lists no files")
    return files


def verify_file(home: Path, name: str, files: dict[str, Any]) -> None:
    """Raise unless a file is regular and its size and checksum match the manifest.

    Weights must also have a valid header, which bounds the bytes that are read.
    """
    path, entry = home / name, files.get(name)
    if entry is None:
        raise invalid_file(home / MANIFEST, f"it does not list {name!r}")
    try:
        with open_regular(path) as file:
            size, expected = os.fstat(file.fileno()).st_size, entry.get("bytes")
            if size != expected:
                raise BundleError(
                    f"{str(path)!r} has {size} bytes instead of {expected!r:.40}; copy the bundle "
                    "again"
                )
            most = MAX_TOKENIZER if name.endswith(".tokenizer.json") else MAX_JSON
            if path.suffix == ".json" and size > most:
                raise invalid_file(path, f"it has {size:,} bytes; at most {most:,} are read")
            if path.suffix == ".safetensors":
                parse_header(file, size)
                file.seek(0)
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable_file(path, error) from None
    except NotRegular as error:
        raise BundleError(str(error)) from None
    except WeightsError as error:
        raise invalid_file(path, f"it is not a valid safetensors file ({error})") from None
    if checksum != entry.get("sha256"):
        raise BundleError(f"{str(path)!r} was altered: its sha256 differs; copy the bundle again")


def build_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the files in a folder."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.iterdir())
    }
    return {"files": files}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a regular file of limited size."""
    try:
        with open_regular(path) as file:
            data = file.read(MAX_JSON + 1)
    except OSError as error:
        raise unreadable_file(path, error) from None
    except NotRegular as error:
        raise BundleError(str(error)) from None
    if len(data) > MAX_JSON:
        raise invalid_file(path, f"it has more than {MAX_JSON:,} bytes")
    try:
        return parse_object(data)
    except JsonError as error:
        raise invalid_file(path, str(error)) from None


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON object, indented for people."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def unreadable_file(path: Path, error: OSError) -> BundleError:
    """The error for a file that the system cannot read."""
    fix = read_fix(error, "copy the bundle again")
    return BundleError(f"cannot read {str(path)!r}: {error.strerror}; {fix}")


def invalid_file(path: Path, reason: str) -> BundleError:
    """The error for a file whose content does not belong to the bundle."""
    reason = " ".join(reason.split())
    reason = reason if len(reason) <= MAX_REASON else reason[:MAX_REASON] + "…"
    return BundleError(f"{str(path)!r} is invalid in this bundle: {reason}; copy the bundle again")


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
