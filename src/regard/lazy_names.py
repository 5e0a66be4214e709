"""Public names of a package that are imported on first access: torch loads only where it is used.

>>> __getattr__ = lazy_names(__name__, {"tokenizers": ("Tokenizer", "END")})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `homes` lists the names that each of its modules defines."""

    def find(name: str) -> Any:
        for home, names in homes.items():
            if name in names:
                return getattr(import_module(f"{package}.{home}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
