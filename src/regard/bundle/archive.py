"""Archive of a bundle: one .zip file that every command and `regard.load` accept.

An archive has the files of one bundle and nothing else. It is unpacked once into a cache folder
named by its sha256. Unpacking accepts only the known file names and limited sizes, so no entry can
leave the folder or fill the disk; nothing in it is run.
"""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from pathlib import Path

from regard.bundle.manifest import (
    BUNDLE_FILES,
    MANIFEST,
    BundleError,
    read_manifest,
    sha256,
    verify_file,
)
from regard.disk import fsync_path

MAX_BYTES = 1 << 36  # of all files
MAX_RATIO = 1_000  # of a file's size to its compressed size: weights compress little
MAX_SMALL_BYTES = 1 << 28  # of any file except the weights
BLOCK_BYTES = 1 << 20
DATE = (1980, 1, 1, 0, 0, 0)  # the same bundle gives the same archive
ZIP = b"PK\x03\x04"
# What zipfile raises for damaged bytes; a damaged header may ask for encryption or another method.
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)


def pack(home: Path, archive: Path) -> int:
    """Write the files of a bundle folder to an archive, atomically; returns its size in bytes."""
    files = read_manifest(home)
    for name in sorted(files):
        verify_file(home, name, files)
    names = [MANIFEST, *sorted(name for name in files if name in BUNDLE_FILES)]
    partial = archive.with_name(f".{archive.name}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as packed:
            for name in names:
                entry = zipfile.ZipInfo(name, DATE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                with open(home / name, "rb") as file, packed.open(entry, "w") as out:
                    shutil.copyfileobj(file, out, BLOCK_BYTES)
        fsync_path(partial)
        partial.replace(archive)
    except OSError as error:
        raise BundleError(f"cannot write {str(archive)!r}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    return archive.stat().st_size


def is_archive(path: Path) -> bool:
    """Whether a path is a .zip file."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == ZIP


def unpack(archive: Path) -> Path:
    """The folder of an archive's bundle in the cache; unpacked on first use."""
    home = cache_folder() / sha256(archive)[:32]
    if (home / MANIFEST).is_file():
        return home
    partial = Path(tempfile.mkdtemp(dir=home.parent, prefix=".unpacking-"))
    try:
        with zipfile.ZipFile(archive) as packed:
            for entry in _check_entries(archive, packed.infolist()):
                _extract(archive, packed, entry, partial / entry.filename)
        read_manifest(partial)
        partial.rename(home)
    except DAMAGE as error:
        raise BundleError(f"{str(archive)!r} is damaged ({error!s:.100}); copy it again") from None
    except OSError as error:
        if not (home / MANIFEST).is_file():  # else another process was faster
            raise BundleError(f"cannot unpack {str(archive)!r}: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return home


def _check_entries(archive: Path, entries: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """Raise unless the entries are files of a bundle, each once and of a reasonable size."""
    names = [entry.filename for entry in entries]
    total = sum(entry.file_size for entry in entries)
    for entry in entries:
        mode = entry.external_attr >> 16
        limit = MAX_BYTES if entry.filename.endswith(".safetensors") else MAX_SMALL_BYTES
        reason = ""
        if entry.filename not in BUNDLE_FILES | {MANIFEST}:
            reason = f"{entry.filename[:80]!r} is not a file of a bundle"
        elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            reason = f"{entry.filename!r} is not a regular file"
        elif names.count(entry.filename) > 1:
            reason = f"{entry.filename!r} occurs twice"
        elif entry.file_size > limit or total > MAX_BYTES:
            reason = f"{entry.filename!r} is too large ({entry.file_size:,} bytes)"
        elif entry.file_size > MAX_RATIO * max(1, entry.compress_size):
            reason = f"{entry.filename!r} is compressed too much"
        if reason:
            raise _not_a_model(archive, reason)
    if MANIFEST not in names:
        raise _not_a_model(archive, f"it has no {MANIFEST}")
    return entries


def _extract(archive: Path, packed: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> None:
    """Copy one entry, at most as many bytes as it declares."""
    left = entry.file_size
    with packed.open(entry) as stream, open(path, "wb") as file:
        while block := stream.read(BLOCK_BYTES):
            left -= len(block)
            if left < 0:
                raise _not_a_model(archive, f"{entry.filename!r} is larger than declared")
            file.write(block)


def cache_folder() -> Path:
    """The folder of unpacked archives: in the user's cache, else in the temporary folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for folder in (Path(base) / "regard/models", Path(tempfile.gettempdir()) / _private_name()):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise BundleError("no folder for unpacked models is writable; set XDG_CACHE_HOME to one")


def _private_name() -> str:
    return f"regard-{os.getuid()}" if hasattr(os, "getuid") else "regard"


def _not_a_model(archive: Path, reason: str) -> BundleError:
    return BundleError(
        f"{str(archive)!r} is not a packed model: {reason}; make one with `regard pack`"
    )
