"""`regard pack`: one file to share a model."""

from __future__ import annotations

from pathlib import Path

from regard import bundle
from regard.errors import RegardError


def pack(folder: Path, archive: Path) -> None:
    """Write the bundle of a run to an archive and print how to use it."""
    if archive.suffix.lower() != ".zip":
        raise RegardError(f"the archive {str(archive)!r} must be named .zip")
    if archive.exists():
        raise RegardError(f"{str(archive)!r} exists; remove it, or choose another name")
    size = bundle.pack(bundle.locate(folder), archive)
    print(f"{archive}: {size:,} bytes; use it as a bundle: regard predict {archive} TEXT")
