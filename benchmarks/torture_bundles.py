"""Mutated bundles: hostile values under right checksums, and damaged bytes under wrong ones."""

from __future__ import annotations

import os
import random
import zipfile
from contextlib import suppress
from pathlib import Path

from bundle_mutations import build_originals, mutate, read_files, use_bundle, write_bundle
from torture_pool import Subject

import regard.inference.torch_engine
import regard.loading
import regard.native.native_engine  # noqa: F401 (imported before any fork)

ENGINES = ("native", "torch", "auto")


class BundleCases(Subject):
    """One mutated bundle each, loaded and used by one of the engines."""

    def prepare(self) -> None:
        """Tiny bundles of several kinds."""
        build_originals(self.work / "prepared")

    def run(self, case: int, folder: Path) -> dict[str, int]:
        """Mutate a bundle, use it, and see that using it changes no file."""
        draw = random.Random(f"{self.seed} bundles {case}")
        homes = sorted(one for one in (self.work / "prepared").iterdir() if one.is_dir())
        files, home = read_files(draw.choice(homes)), folder / "bundle"
        kind = draw.random()
        if kind < 0.75:
            for _ in range(draw.choice([1, 1, 2])):
                # The first mutation may leave no JSON for the second.
                with suppress(ValueError, IndexError, RecursionError):
                    files, _ = mutate(files, draw)
            write_bundle(home, files)
        else:  # as a copy that went wrong: the manifest stays
            name = draw.choice(sorted(files))
            files[name] = damage(files[name], draw)
            home.mkdir()
            for name, data in files.items():
                (home / name).write_bytes(data)
        place, cache = pack(home, draw) if kind > 0.95 else home, folder / "cache"
        os.environ["XDG_CACHE_HOME"] = str(cache)
        before = snapshot(folder)
        outcome = use_bundle(place, draw.choice(ENGINES))
        after = snapshot(folder)
        assert not [name for name in after if ".unpacking-" in name], "half-unpacked"
        kept = {name: one for name, one in after.items() if not name.startswith(str(cache))}
        assert kept == before, "files changed"
        return {"loaded" if outcome == "loaded" else "refused": 1}


def damage(data: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, removed or repeated."""
    place = draw.randrange(len(data) + 1)
    kind = draw.randrange(4)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + draw.randbytes(draw.randint(1, 8)) + data[place:]
    if kind == 2:
        return data[:place] + data[place + draw.randint(1, 64) :]
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 4, 64])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def pack(home: Path, draw: random.Random) -> Path:
    """The bundle as an archive, damaged in half of the cases."""
    archive = home.with_suffix(".zip")
    with zipfile.ZipFile(
        archive, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    ) as out:
        for path in sorted(home.iterdir()):
            out.write(path, path.name)
    if draw.random() < 0.5:
        archive.write_bytes(damage(archive.read_bytes(), draw))
    return archive


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and time of each file below a folder."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[str(path)] = status.st_size, status.st_mtime_ns
    return found
