"""What Regard says when it cannot go on: one line that names the thing, the value and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")
_debugging: ContextVar[bool] = ContextVar("regard_debugging", default=False)


class RegardError(ValueError):
    """Any mistake of input or setting that a person can mend. `exit_code`: that of a program which ends by it."""

    exit_code = 2


class ShapeError(RegardError):
    """Tensors whose sizes do not fit together."""


class UnknownName(RegardError):
    """A part, setting or word that nothing goes by."""


class BackendError(RegardError):
    """An explicitly requested backend that cannot run this attention."""


class NotANumber(RegardError):
    """A NaN, named with its place; only raised inside `debug()`."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The way out of an unknown name: the nearest known one, or all of them."""
    known = sorted(known)
    near = get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(map(repr, known))}"


def choose(registry: Mapping[str, T], name: str, kind: str) -> T:
    """The part called `name`, or an error with the nearest known name."""
    if not isinstance(name, str) or name not in registry:
        raise UnknownName(f"unknown {kind} {name!r}; {suggestion(name, registry)}")
    return registry[name]


@contextmanager
def debug() -> Iterator[None]:
    """Look at every score while this is open: the first NaN stops with its place. Slow; for finding faults."""
    token = _debugging.set(True)
    try:
        yield
    finally:
        _debugging.reset(token)


def debugging() -> bool:
    """Whether a `debug()` block is open here."""
    return _debugging.get()
