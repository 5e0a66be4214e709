"""Regular files only: a link, pipe, socket or device in a bundle is refused, never waited for.

The included models are an exception: some installers link all files of a package to a cache. Who
can change these links can also change the code beside them.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from regard.errors import RegardError

KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
PACKAGE = Path(os.path.abspath(__file__)).parents[1]  # not resolved: it may be such a link
# A path that changes between check and opening is neither followed nor waited for.
FLAGS = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    FLAGS |= getattr(os, _name, 0)


class NotRegular(RegardError):
    """A path in a bundle that is not a regular file."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; an OSError passes through."""
    if PACKAGE in Path(os.path.abspath(path)).parents:
        path = Path(os.path.realpath(path))
    _check_kind(path, path.lstat().st_mode)
    file = os.fdopen(os.open(path, FLAGS), "rb")
    try:
        _check_kind(path, os.fstat(file.fileno()).st_mode)
    except NotRegular:
        file.close()
        raise
    return file


def _check_kind(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "a special file")
        raise NotRegular(
            f"{str(path)!r} is {kind}; a bundle has regular files only: copy it with its contents "
            "(cp -rL)"
        )
