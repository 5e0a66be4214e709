"""Download of a model from the Hugging Face Hub, only where the user asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.errors import RegardError

NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
PATTERNS = ["*.json", "*.safetensors", "*.spm", "*.model", "merges.txt"]  # neither code nor pickles


@contextmanager
def downloaded(name: str) -> Iterator[Path]:
    """A temporary folder with the files of a model on the Hub."""
    if not NAME.fullmatch(name):
        raise RegardError(
            f"{name!r} is not a name on the Hugging Face Hub; use one such as google/flan-t5-small"
        )
    if find_spec("huggingface_hub") is None:
        raise RegardError("--download needs huggingface_hub; pip install huggingface_hub")
    library = import_module("huggingface_hub")
    with TemporaryDirectory(prefix="regard-") as folder:
        try:
            library.snapshot_download(name, local_dir=folder, allow_patterns=PATTERNS)
        except Exception as error:  # many kinds: network, name, access
            what = (str(error).splitlines() or [type(error).__name__])[0]
            raise RegardError(f"cannot download {name!r}: {what}; check name and network") from None
        yield Path(folder)
