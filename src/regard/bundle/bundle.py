"""Bundle: saved whole or not at all, loaded whole or with one line that says what is wrong."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from regard import config
from regard.bundle import weights
from regard.bundle.manifest import (
    CARD,
    CONFIG,
    MANIFEST,
    SHARED,
    SOURCE,
    TARGET,
    WEIGHTS,
    BundleError,
    foreign,
    listed,
    manifest,
    read_json,
    verify,
    write_json,
)
from regard.bundle.weights import Settings
from regard.device import placed
from regard.disk import to_disk
from regard.errors import RegardError
from regard.models import Model
from regard.text.tokenizers import Tokenizer

VERSION = 1


@dataclass(frozen=True, eq=False)
class Bundle:
    """A model with its tokenisers, its settings and its card. With a shared vocabulary `source is target`."""

    model: Model
    source: Tokenizer
    target: Tokenizer
    settings: Settings
    card: dict[str, Any]


def save(folder: str | os.PathLike[str], bundle: Bundle) -> None:
    """Write a bundle whole or not at all; an older bundle of that name stays until the new one is on the disk."""
    check_place(folder)
    home = Path(os.path.realpath(folder))
    partial, old = _beside(home, "partial"), _beside(home, "old")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        _clear(home, partial, old)
        partial.mkdir()
        _fill(partial, bundle)
        if home.exists():
            home.rename(old)
        partial.rename(home)
        to_disk(home.parent)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise BundleError(f"cannot write bundle {str(folder)!r}: {what}; mend that and save again") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if old.exists() and not home.exists():
            old.rename(home)


def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> Bundle:
    """The bundle in a folder, its model in eval mode. Every damage is one line that names the file."""
    place, home = placed(device), found(Path(folder))
    files = listed(home)
    settings, sizes, shared = _configured(home, files)
    names = [SHARED] if shared else [SOURCE, TARGET]
    for name in (WEIGHTS, CARD, *names):
        verify(home, name, files)
    try:
        tokenizers = [Tokenizer.load(home / name) for name in names]
    except RegardError as error:
        raise BundleError(str(error)) from None
    source, target = tokenizers[0], tokenizers[-1]
    for name, tokenizer, size in zip((names[0], names[-1]), (source, target), sizes, strict=True):
        if len(tokenizer) != size:
            raise foreign(home / name, f"it has {len(tokenizer):,} ids where {CONFIG} says {size:,}")
    card = read_json(home / CARD)
    return Bundle(weights.read(home, settings, sizes).to(place).eval(), source, target, settings, card)


def check_place(folder: str | os.PathLike[str]) -> None:
    """Raise unless a bundle may be saved here: nothing is there, an empty folder, or a bundle and nothing else."""
    home = Path(os.path.realpath(folder))
    if not home.exists():
        return
    if not home.is_dir():
        raise BundleError(f"cannot save a bundle as {str(folder)!r}: it is a file; choose another name")
    own = {WEIGHTS, CONFIG, CARD, MANIFEST, SOURCE, TARGET, SHARED}
    strangers = sorted(path.name for path in home.iterdir() if path.name not in own)
    if strangers:
        raise BundleError(
            f"saving a bundle as {str(folder)!r} would remove {strangers[0]!r}, which is no part of a bundle; "
            f"move it away or choose another folder"
        )


def _beside(home: Path, role: str) -> Path:
    """Where a new bundle grows, or an old one waits; hidden, on the same disk, so that a rename is enough."""
    return home.with_name(f".{home.name}.{role}")


def _clear(home: Path, partial: Path, old: Path) -> None:
    """Put right what a killed save left behind."""
    if old.exists() and not home.exists():
        old.rename(home)
    for orphan in (partial, old):
        if orphan.exists():
            shutil.rmtree(orphan)


def found(folder: Path) -> Path:
    """The folder; or the one it was just moved to, should a save have been killed between its two renames."""
    if folder.is_dir():
        return folder
    old = _beside(Path(os.path.realpath(folder)), "old")
    if old.is_dir() and not folder.exists():
        return old
    if folder.exists():
        raise BundleError(f"{str(folder)!r} is a file, not a bundle; give the folder that `regard train` wrote")
    raise BundleError(f"there is no bundle {str(folder)!r}; give the folder that `regard train` wrote")


def _fill(folder: Path, bundle: Bundle) -> None:
    """All files of a bundle, the manifest last."""
    shared = bundle.source is bundle.target or bundle.source.fingerprint == bundle.target.fingerprint
    sizes = {"source": len(bundle.source), "target": len(bundle.target)}
    weights.write(folder, bundle.model, bundle.settings, (sizes["source"], sizes["target"]))
    settings = bundle.settings.model_dump(mode="json")
    write_json(folder / CONFIG, {"version": VERSION, "model": settings, "vocabulary": sizes, "shared": shared})
    try:
        write_json(folder / CARD, bundle.card)
    except (TypeError, ValueError) as error:
        raise BundleError(f"the card of this bundle is no JSON: {error}; give strings, numbers and lists") from None
    bundle.source.save(folder / (SHARED if shared else SOURCE))
    if not shared:
        bundle.target.save(folder / TARGET)
    write_json(folder / MANIFEST, manifest(folder))
    for path in (*folder.iterdir(), folder):
        to_disk(path)


def _configured(home: Path, files: dict[str, Any]) -> tuple[Settings, tuple[int, int], bool]:
    """Settings, vocabulary sizes and whether they are one vocabulary, of a version that is understood."""
    verify(home, CONFIG, files)
    values = read_json(home / CONFIG)
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise BundleError(
            f"{str(home / CONFIG)!r} is of format {version}, newer than the {VERSION} known here; "
            "upgrade with pip install -U regard"
        )
    try:
        if version != VERSION:
            raise RegardError(f"its version is {version!r}, not {VERSION}")
        settings = config.parse(config.ModelSettings, values["model"], "model")
        sizes = values["vocabulary"]["source"], values["vocabulary"]["target"]
        if not all(isinstance(size, int) and 0 < size < 1 << 31 for size in sizes):
            raise RegardError(f"its vocabulary sizes are {sizes}")
        return settings, sizes, bool(values["shared"])
    except (RegardError, KeyError, TypeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise foreign(home / CONFIG, what) from None
