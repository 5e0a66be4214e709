"""Files that are there whole or not at all, and on the disk before they have their name."""

from __future__ import annotations

import os
from pathlib import Path


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk and not only in memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, text: str) -> None:
    """Write a text to a file that nobody ever sees half."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        to_disk(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
