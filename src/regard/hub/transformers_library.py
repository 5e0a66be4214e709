"""The library `transformers`, which only verifies imports and exports."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """The library without its progress bars, warnings and downloads."""
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library = import_module("transformers")
            level = library.logging.get_verbosity()
            bars = library.utils.logging.is_progress_bar_enabled()
            library.logging.set_verbosity_error()
            library.logging.disable_progress_bar()
            try:
                yield library
            finally:
                library.logging.set_verbosity(level)
                if bars:
                    library.logging.enable_progress_bar()
    finally:
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before
