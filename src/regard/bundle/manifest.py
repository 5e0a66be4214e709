"""The files of a bundle: names, checksums, JSON, and the errors for missing or altered files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from regard.errors import RegardError, no_bundle

WEIGHTS = "weights.safetensors"
CONFIG = "config.json"
CARD = "card.json"
MANIFEST = "manifest.json"
SOURCE = "source.tokenizer.json"
TARGET = "target.tokenizer.json"
SHARED = "shared.tokenizer.json"
TRAINING_SOURCES = "training_sources.safetensors"  # optional
README = "README.md"
BUNDLE_FILES = {WEIGHTS, CONFIG, CARD, SOURCE, TARGET, SHARED, TRAINING_SOURCES, README}


class BundleError(RegardError):
    """A folder that is not a valid bundle, or cannot be saved as one."""


def read_manifest(home: Path) -> dict[str, Any]:
    """The manifest's entry for each file."""
    if not (home / MANIFEST).is_file():
        raise BundleError(no_bundle(home, f"not a bundle: it has no {MANIFEST}"))
    files = read_json(home / MANIFEST).get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise invalid_file(home / MANIFEST, "it lists no files")
    return files


def verify_file(home: Path, name: str, files: dict[str, Any]) -> None:
    """Raise unless the size and checksum of a file match the manifest."""
    path, entry = home / name, files.get(name)
    if entry is None:
        raise invalid_file(home / MANIFEST, f"it does not list {name!r}")
    try:
        size, checksum = path.stat().st_size, sha256(path)
    except OSError as error:
        raise unreadable_file(path, error) from None
    expected = entry.get("bytes")
    if size != expected:
        raise BundleError(
            f"{str(path)!r} has {size} bytes instead of {expected}; copy the bundle again"
        )
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
    """Read a JSON object."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable_file(path, error) from None
    except (ValueError, RecursionError):
        raise invalid_file(path, "it is not valid JSON") from None
    if not isinstance(values, dict):
        raise invalid_file(path, "it is not a JSON object")
    return values


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON object, indented for people."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def unreadable_file(path: Path, error: OSError) -> BundleError:
    """The error for a file that the system cannot read."""
    return BundleError(f"cannot read {str(path)!r}: {error.strerror}; copy the bundle again")


def invalid_file(path: Path, reason: str) -> BundleError:
    """The error for a file whose content does not belong to the bundle."""
    return BundleError(f"{str(path)!r} is invalid in this bundle: {reason}; copy the bundle again")


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
