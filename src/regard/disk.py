"""Atomic, durable file writes."""

from __future__ import annotations

import os
from pathlib import Path


def fsync_path(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to the storage device."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def use_default_mode(path: Path) -> None:
    """Give a file the mode of a newly created one (0666 without the umask); safetensors writes
    0600."""
    probe = path.with_name(f".tmp.{path.name}")  # resuming after a kill removes it
    try:
        probe.touch()
        path.chmod(probe.stat().st_mode & 0o777)
    finally:
        probe.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file through a temporary file and a rename: no partial file is visible."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        fsync_path(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
