"""Where a model is: a bundle, a run, an included model by name, or hf:FOLDER of Hugging Face."""

from __future__ import annotations

import os
from pathlib import Path

from regard.pretrained import resolve_model

HUGGING_FACE = "hf:"


def find_model(folder: str | os.PathLike[str]) -> Path:
    """The path of a bundle. `hf:FOLDER` is imported into the cache when it is first used."""
    name = os.fspath(folder)
    if name.startswith(HUGGING_FACE):
        from regard.hub.import_cache import cached_import

        return cached_import(name.removeprefix(HUGGING_FACE))
    return resolve_model(folder)
