"""Reads distributed data sets: lines and tables, gzipped or not, in an archive or a folder."""

import gzip
import io
import tarfile
from pathlib import Path

from regard.errors import RegardError

Pairs = list[tuple[str, str]]


def table(text: str) -> Pairs:
    """The first two columns of tab-separated text."""
    return [(row[0], row[1]) for row in (line.split("\t") for line in text.split("\n") if line)]


def columns(path: Path) -> Pairs:
    """The first two columns of a tab-separated file."""
    return table("\n".join(lines(path)))


def plain(line: str) -> str:
    """A line without tabs and surrounding space."""
    return line.replace("\t", " ").strip()


def lines(path: Path) -> list[str]:
    """The lines of a file, gzipped or not."""
    found = first_existing(path, path.with_suffix(""))
    open_text = gzip.open if found.suffix == ".gz" else open
    with open_text(found, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def members(path: Path, prefix: str | tuple[str, ...], inside: str = "") -> dict[str, str]:
    """The texts of an archive, or of its unpacked folder (`inside`), whose names have a prefix."""
    if not path.is_file() and (folder := path.parent / inside).is_dir():
        names = (
            file.relative_to(folder).as_posix()
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        )
        found = {
            name: (folder / name).read_bytes().decode() for name in names if name.startswith(prefix)
        }
        if found:
            return found
    with tarfile.open(first_existing(path)) as archive:
        files = [member for member in archive if member.isfile() and member.name.startswith(prefix)]
        texts = {member.name: archive.extractfile(member) for member in files}
        return {
            name: io.TextIOWrapper(file, "utf-8").read()
            for name, file in texts.items()
            if file is not None
        }


def first_existing(*paths: Path) -> Path:
    """The first of these files that exists."""
    for path in paths:
        if path.is_file():
            return path
    name = f"{paths[0].parent.name}/{paths[0].name}"
    raise RegardError(
        f"{str(paths[0])!r} does not exist; --data is the folder that holds {name}; "
        "docs/quality.md says where to get it"
    )
