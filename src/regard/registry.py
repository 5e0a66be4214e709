"""Registry: parts by name. A user adds a part in one line and then selects it in a setting.

>>> @NORMALISERS.register("mine")
... class Mine(Normaliser): ...
"""

from __future__ import annotations

from collections.abc import Callable
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
