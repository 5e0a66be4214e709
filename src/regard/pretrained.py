"""The pretrained models included in the package, by name."""

from __future__ import annotations

import os
from pathlib import Path

MODELS = Path(__file__).parent / "data/models"


def included_models() -> list[str]:
    """The names of the included models."""
    return sorted(path.parent.name for path in MODELS.glob("*/manifest.json"))


def resolve_model(folder: str | os.PathLike[str]) -> Path:
    """The path of a bundle: the folder or its `bundle` if it is the folder of a run; if it does not
    exist, the pretrained model of that name."""
    path, name = Path(folder), os.fspath(folder)
    if (path / "bundle").is_dir() and not (path / "manifest.json").exists():
        return path / "bundle"
    if path.exists() or name in ("", ".", "..") or Path(name).name != name:
        return path
    return MODELS / name if (MODELS / name).is_dir() else path
