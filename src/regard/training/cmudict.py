"""The default task: English spelling to sound, from the included CMU Pronouncing Dictionary."""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from regard.disk import write_atomically

PARTS = {"test": 5, "dev": 2}  # of each hundred words; the rest is for training


def dictionary() -> Iterator[tuple[str, str]]:
    """Every word with each of its pronunciations: phones (of 39) separated by spaces."""
    packed = resources.files("regard").joinpath("data/cmudict.tsv.xz").read_bytes()
    for line in lzma.decompress(packed).decode().splitlines():
        word, _, phones = line.partition("\t")
        yield word, phones


def part(word: str) -> str:
    """train, dev or test, by the hash of the word: a fixed split without overlap."""
    place = int(hashlib.sha256(word.encode()).hexdigest(), 16) % 100
    for name, share in PARTS.items():
        if place < share:
            return name
        place -= share
    return "train"


def unpack(folder: Path) -> dict[str, Path]:
    """Write the three parts as TSV files to a folder; existing files are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.tsv" for name in ("train", "dev", "test")}
    if all(path.exists() for path in paths.values()):
        return paths
    lines: dict[str, list[str]] = {name: [] for name in paths}
    for word, phones in dictionary():
        lines[part(word)].append(f"{word}\t{phones}\n")
    for name, path in paths.items():
        write_atomically(path, "".join(lines[name]))
    return paths
