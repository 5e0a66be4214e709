"""User-defined parts: import Python files that register scores, normalisers and positions.

Only files that the user names are run. A bundle stores the names of its parts and never any code.

>>> import_file("my_parts.py")      # contains @NORMALISERS.register("mine") above a class
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from regard.errors import RegardError


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
    digest = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:8]
    return f"regard_user_parts_{file.stem}_{digest}"


def _place(file: Path, error: Exception) -> str:
    """The file and the line of it that failed."""
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
