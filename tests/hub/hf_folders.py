"""Tiny Hugging Face folders for tests of imports, written once and copied."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from benchmarks.interchange_models import random_hf_model, write_folder


@cache
def _stored(name: str, size: int) -> tuple[Path, Any]:
    folder = Path(mkdtemp(prefix="regard-hf-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model = random_hf_model(name, size)
    write_folder(model, folder)
    return folder, model


def hf_folder(place: Path, name: str = "marian", size: int = 1) -> tuple[Path, Any]:
    """A copy of a folder at `place`, and its model in `transformers`."""
    stored, model = _stored(name, size)
    shutil.copytree(stored, place)
    return place, model
