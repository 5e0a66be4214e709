"""`hf:FOLDER`: a Hugging Face folder where a bundle is expected; imported once into the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from regard.bundle.archive import cache_folder
from regard.bundle.manifest import CARD, MANIFEST, read_json
from regard.bundle.model_files import save
from regard.hub.checkpoint_folder import CheckpointFolder, HuggingFaceError
from regard.hub.hf_import import import_checkpoint

VERSION = 1  # of the conversion; bundles of older ones are imported again


def cached_import(folder: str | os.PathLike[str]) -> Path:
    """The bundle of a Hugging Face folder; imported on first use and whenever a file changes."""
    checkpoint = CheckpointFolder(folder)
    home = cache_folder() / _fingerprint(checkpoint)
    if (home / MANIFEST).is_file():
        return home
    print(f"importing {checkpoint.name!r} (once)", file=sys.stderr)
    return _import_to(home, folder)


def compared_import(folder: str | os.PathLike[str]) -> Path:
    """The same, but only of a model whose logits are those of `transformers`; raises otherwise.

    A bundle that was imported while `transformers` was missing is imported again.
    """
    checkpoint = CheckpointFolder(folder)
    home = cache_folder() / _fingerprint(checkpoint)
    if (home / MANIFEST).is_file() and _is_compared(home):
        return home
    if find_spec("transformers") is None:
        raise HuggingFaceError(
            f"cannot open {checkpoint.name!r}: its logits must be compared with those of "
            "transformers, which is not installed; pip install 'transformers>=5'"
        )
    print(f"importing {checkpoint.name!r} (once)", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    made = _import_to(home, folder)
    facts = read_json(made / CARD)["import"]
    print(
        f"its logits differ from those of {facts['check']} by at most "
        f"{facts['largest_difference']:.1e} on {facts['texts']} texts",
        file=sys.stderr,
        flush=True,
    )
    return made


def _is_compared(home: Path) -> bool:
    return "largest_difference" in read_json(home / CARD).get("import", {})


def _import_to(home: Path, folder: str | os.PathLike[str]) -> Path:
    """Import a folder into the cache, atomically."""
    made = import_checkpoint(folder)
    partial = Path(tempfile.mkdtemp(dir=home.parent, prefix=".importing-"))
    try:
        save(partial / home.name, made)
        os.rename(partial / home.name, home)
    except OSError:
        if not (home / MANIFEST).is_file():  # else another process was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return home


def _fingerprint(checkpoint: CheckpointFolder) -> str:
    """Identifies the files of a folder without reading them."""
    files = []
    for path in sorted(checkpoint.home.iterdir()):
        if path.is_file():
            found = path.stat()
            files.append([path.name, found.st_ino, found.st_size, found.st_mtime_ns])
    text = json.dumps([VERSION, str(checkpoint.home), files])
    return f"hf-{hashlib.sha256(text.encode()).hexdigest()[:29]}"
