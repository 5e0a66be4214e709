"""BundleContents: everything in a bundle except the torch model. This module itself does not use
torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import config
from regard.bundle.archive import is_archive, unpack
from regard.bundle.manifest import (
    BUNDLE_FILES,
    CARD,
    CONFIG,
    MANIFEST,
    SHARED,
    SOURCE,
    TARGET,
    TRAINING_SOURCES,
    WEIGHTS,
    BundleError,
    invalid_file,
    read_json,
    read_manifest,
    verify_file,
)
from regard.bundle.training_sources import TrainingSources
from regard.errors import RegardError, no_bundle
from regard.text.tokenizers import Tokenizer

VERSION = 1
FamilySettings = config.TransformerSettings | config.RecurrentSettings


@dataclass(frozen=True, eq=False)
class BundleContents:
    """A verified bundle folder: settings, tokenizers and card. With a shared vocabulary `source is
    target`. `weights` is the path of the safetensors file."""

    home: Path
    settings: FamilySettings
    source: Tokenizer
    target: Tokenizer
    card: dict[str, Any]
    training_sources: TrainingSources | None = None

    @property
    def weights(self) -> Path:
        """The safetensors file."""
        return self.home / WEIGHTS

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """The source and target vocabulary sizes."""
        return len(self.source), len(self.target)


def read_contents(folder: str | os.PathLike[str]) -> BundleContents:
    """Read and verify a bundle without building its model."""
    home = locate(Path(folder))
    files = read_manifest(home)
    verify_file(home, CONFIG, files)
    settings, sizes, shared = _read_config(home)
    names = [SHARED] if shared else [SOURCE, TARGET]
    for name in (WEIGHTS, CARD, *names):
        verify_file(home, name, files)
    try:
        tokenizers = [Tokenizer.load(home / name) for name in names]
    except RegardError as error:
        raise BundleError(str(error)) from None
    source, target = tokenizers[0], tokenizers[-1]
    sides = (names[0], source, sizes[0]), (names[-1], target, sizes[1])
    for name, tokenizer, size in sides:
        if len(tokenizer) != size:
            reason = f"it has {len(tokenizer):,} ids, but {CONFIG} says {size:,}"
            raise invalid_file(home / name, reason)
    sources = None
    if TRAINING_SOURCES in files:
        verify_file(home, TRAINING_SOURCES, files)
        sources = TrainingSources.load(home / TRAINING_SOURCES)
    return BundleContents(home, settings, source, target, read_json(home / CARD), sources)


def locate(folder: Path) -> Path:
    """The folder of a bundle, also of a packed one; or its backup if a save was killed between its
    two renames."""
    if folder.is_dir():
        return folder
    if is_archive(folder):
        return unpack(folder)
    backup = sibling(Path(os.path.realpath(folder)), "old")
    if backup.is_dir() and not folder.exists():
        return backup
    if folder.exists():
        raise BundleError(no_bundle(folder, "a file, not a bundle"))
    raise BundleError(no_bundle(folder))


def check_destination(folder: str | os.PathLike[str]) -> None:
    """Raise unless a bundle can be saved here: the folder does not exist, is empty or is a
    bundle."""
    home = Path(os.path.realpath(folder))
    if not home.exists():
        return
    if not home.is_dir():
        raise BundleError(
            f"cannot save a bundle as {str(folder)!r}: it is a file; choose another name"
        )
    own = BUNDLE_FILES | {MANIFEST}
    others = sorted(path.name for path in home.iterdir() if path.name not in own)
    if others:
        raise BundleError(
            f"saving a bundle as {str(folder)!r} would remove {others[0]!r}, which is not part of "
            "a bundle; move it or choose another folder"
        )


def sibling(home: Path, role: str) -> Path:
    """A hidden folder next to a bundle, on the same disk, so that a rename is atomic."""
    return home.with_name(f".{home.name}.{role}")


def _read_config(home: Path) -> tuple[FamilySettings, tuple[int, int], bool]:
    """Settings, vocabulary sizes and whether the vocabulary is shared."""
    values = read_json(home / CONFIG)
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise BundleError(
            f"{str(home / CONFIG)!r} has format version {version}, newer than the supported "
            f"{VERSION}; upgrade with pip install -U regard"
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
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise invalid_file(home / CONFIG, reason) from None
