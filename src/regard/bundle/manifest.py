"""The files of a bundle: their names, their checksums, and what is said of one that is not whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from regard.errors import RegardError

WEIGHTS, CONFIG, CARD, MANIFEST = "weights.safetensors", "config.json", "card.json", "manifest.json"
SOURCE, TARGET, SHARED = "source.tokenizer.json", "target.tokenizer.json", "shared.tokenizer.json"


class BundleError(RegardError):
    """A folder that is no whole bundle, or cannot become one."""


def listed(home: Path) -> dict[str, Any]:
    """What the manifest says of each file."""
    if not (home / MANIFEST).is_file():
        raise BundleError(f"{str(home)!r} is no bundle: it has no {MANIFEST}; give the folder `regard train` wrote")
    files = read_json(home / MANIFEST).get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise foreign(home / MANIFEST, "it lists no files")
    return files


def verify(home: Path, name: str, listed: dict[str, Any]) -> None:
    """Raise unless the file is the one that was saved."""
    path, entry = home / name, listed.get(name)
    if entry is None:
        raise foreign(home / MANIFEST, f"it does not list {name!r}")
    try:
        size, found = path.stat().st_size, sha256(path)
    except OSError as error:
        raise unreadable(path, error) from None
    if size != entry.get("bytes"):
        raise BundleError(f"{str(path)!r} has {size} bytes instead of {entry.get('bytes')}; copy the bundle again")
    if found != entry.get("sha256"):
        raise BundleError(f"{str(path)!r} was altered: its sha256 differs; copy the bundle again")


def manifest(folder: Path) -> dict[str, Any]:
    """What the manifest has to say of the files that are there."""
    files = sorted(folder.iterdir())
    return {"files": {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files}}


def read_json(path: Path) -> dict[str, Any]:
    """The names and values of a file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, RecursionError):
        raise foreign(path, "it is no whole JSON") from None
    if not isinstance(values, dict):
        raise foreign(path, "it holds no names with values")
    return values


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Names and values as a file that people can read."""
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def unreadable(path: Path, error: OSError) -> BundleError:
    """That the system does not hand a file out."""
    return BundleError(f"cannot read {str(path)!r}: {error.strerror}; copy the bundle again")


def foreign(path: Path, why: str) -> BundleError:
    """That a file is not what this bundle had there."""
    return BundleError(f"{str(path)!r} does not belong in this bundle: {why}; copy the bundle again")


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
