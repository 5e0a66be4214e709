"""Files as data sets are distributed: lines and tables, packed by gzip or not, in an archive or in a folder."""

import gzip
import io
import tarfile
from pathlib import Path

from regard.errors import RegardError

Pairs = list[tuple[str, str]]


def table(text: str) -> Pairs:
    return [(row[0], row[1]) for row in (line.split("\t") for line in text.split("\n") if line)]


def columns(path: Path) -> Pairs:
    return table("\n".join(lines(path)))


def plain(line: str) -> str:
    """One line of a table: no tabs inside, nothing around."""
    return line.replace("\t", " ").strip()


def lines(path: Path) -> list[str]:
    """The lines of a file, packed by gzip or not."""
    found = there(path, path.with_suffix(""))
    opened = gzip.open if found.suffix == ".gz" else open
    with opened(found, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def members(path: Path, beginning: str | tuple[str, ...], inside: str = "") -> dict[str, str]:
    """The texts whose names begin so, of an archive; or, unpacked, of its folder or what lies `inside`."""
    if not path.is_file() and (folder := path.parent / inside).is_dir():
        names = (file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file())
        found = {name: (folder / name).read_bytes().decode() for name in names if name.startswith(beginning)}
        if found:
            return found
    with tarfile.open(there(path)) as archive:
        files = [member for member in archive if member.isfile() and member.name.startswith(beginning)]
        texts = {member.name: archive.extractfile(member) for member in files}
        return {name: io.TextIOWrapper(file, "utf-8").read() for name, file in texts.items() if file is not None}


def there(*paths: Path) -> Path:
    """The first of these that is there."""
    for path in paths:
        if path.is_file():
            return path
    name = f"{paths[0].parent.name}/{paths[0].name}"
    raise RegardError(
        f"{str(paths[0])!r} is not there; --data is the folder that holds {name}: docs/quality.md says where to get it"
    )
