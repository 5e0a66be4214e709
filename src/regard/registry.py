"""Registry: parts by name. A user adds a part in one line and then selects it in a setting.

Parts of one's own are classes in Python files that the user names (`--import FILE`). A bundle
stores the names of its parts and never any code.

>>> @NORMALISERS.register("mine")
... class Mine(Normaliser): ...
>>> import_file("my_parts.py")      # contains @NORMALISERS.register("mine") above a class
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, overload

from regard.errors import RegardError, choose

T = TypeVar("T")
C = TypeVar("C", bound="type[Any]")


class Registry(dict[str, T]):
    """The classes of one kind of part ("score", "normaliser", "position") by name."""

    def __init__(self, kind: str, entries: dict[str, T]) -> None:
        super().__init__(entries)
        self.kind = kind

    @overload
    def register(self, name: str) -> Callable[[C], C]: ...
    @overload
    def register(self, name: str, part: C) -> C: ...
    def register(self, name: str, part: Any = None) -> Any:
        """Add a class under a new name; without a class, return a decorator that adds one."""
        if not isinstance(name, str) or not name:
            raise RegardError(f"a {self.kind} needs a name to register it under; got {name!r:.40}")
        if part is None:
            return lambda decorated: self.register(name, decorated)
        known = self.get(name)
        if known is not None and not _same(known, part):
            raise RegardError(
                f"{self.kind} {name!r} is already registered as {known!r}; choose another name"
            )
        self[name] = part
        return part

    def choose(self, name: str) -> T:
        """The class with this name; the error for an unknown name suggests the nearest one."""
        return choose(self, name, self.kind)


def _same(known: Any, part: Any) -> bool:
    """Whether both are one class, possibly defined again (a notebook cell, a worker process)."""
    names = ("__module__", "__qualname__")
    return all(getattr(known, name, known) == getattr(part, name, part) for name in names)


def import_files(paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> None:
    """Import each file, in order; a single path may stand for a list of one."""
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        import_file(path)


def import_file(path: str | os.PathLike[str]) -> ModuleType:
    """Run a Python file once per process, so that the parts it registers exist.

    Like Python's own `import`, a second call for the same file returns the module of the first.
    """
    file = Path(path)
    if not file.is_file():
        what = "it is a folder" if file.is_dir() else "no such file"
        raise RegardError(f"cannot import {str(path)!r}: {what}; give the path of a Python file")
    name = _module_name(file)
    if name in sys.modules:
        return sys.modules[name]
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise RegardError(f"cannot import {str(path)!r}: its name must end in .py; rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise RegardError(f"cannot import {_place(file, error)}: {_reason(error)}") from error
    return module


def _module_name(file: Path) -> str:
    """A name that is unique to the file, and the same in every process."""
    import hashlib

    digest = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:8]
    return f"regard_user_parts_{file.stem}_{digest}"


def _place(file: Path, error: Exception) -> str:
    """The file and the line of it that failed."""
    import traceback

    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == str(file)]  # fmt: skip
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f"{file}:{lines[-1]}" if lines else str(file)


def _reason(error: Exception) -> str:
    """The error in one line."""
    if isinstance(error, RegardError):
        return str(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {text}".split())
