"""The folder of a bundle: where it is, and whether one can be saved there."""

from __future__ import annotations

import os
from pathlib import Path

from regard.bundle.manifest import BUNDLE_FILES, MANIFEST, BundleError
from regard.errors import no_bundle
from regard.pretrained import included_models


def locate(folder: Path) -> Path:
    """The folder of a bundle, also of a packed one; or its backup if a save was killed between its
    two renames."""
    if folder.is_dir():
        return folder
    if folder.is_file():
        from regard.bundle.archive import is_archive, unpack

        if is_archive(folder):
            return unpack(folder)
    backup = sibling(Path(os.path.realpath(folder)), "old")
    if backup.is_dir() and not folder.exists():
        return backup
    if folder.exists():
        raise BundleError(no_bundle(folder, "a file, not a bundle"))
    raise BundleError(no_bundle(folder, included=included_models()))


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
