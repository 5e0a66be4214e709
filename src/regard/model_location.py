"""Where a model is: a bundle, a run, an included model by name, or hf:FOLDER of Hugging Face."""

from __future__ import annotations

import os
from pathlib import Path

from regard.pretrained import resolve_model

HUGGING_FACE = "hf:"


def find_model(folder: str | os.PathLike[str], *, compared: bool = False) -> Path:
    """The path of a bundle. `hf:FOLDER` is imported into the cache when it is first used.

    With `compared`, a model of Hugging Face must have the logits of the library `transformers`.
    """
    name = os.fspath(folder)
    if name.startswith(HUGGING_FACE):
        from regard.hub.import_cache import cached_import, compared_import

        load = compared_import if compared else cached_import
        return load(name.removeprefix(HUGGING_FACE))
    return resolve_model(folder)
