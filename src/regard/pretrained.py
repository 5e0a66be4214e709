"""Shipped: the small trained models that come with the package, known by their names."""

from __future__ import annotations

import os
from pathlib import Path

MODELS = Path(__file__).parent / "data/models"


def located(folder: str | os.PathLike[str]) -> Path:
    """Where a bundle is: the folder itself; or, where there is none, the shipped model of that name."""
    path, name = Path(folder), os.fspath(folder)
    if path.exists() or name in ("", ".", "..") or Path(name).name != name:
        return path
    return MODELS / name if (MODELS / name).is_dir() else path
