"""Errors of Regard: one line that names the object, the value and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")
MOST_LISTED = 40
_debugging: ContextVar[bool] = ContextVar("regard_debugging", default=False)


class RegardError(ValueError):
    """A user error: bad input or a bad setting. `exit_code` is the exit status of the CLI."""

    exit_code = 2


class ShapeError(RegardError):
    """Tensor shapes that do not fit together."""


class UnknownName(RegardError):
    """An unknown part, setting or word."""


class BackendError(RegardError):
    """An explicitly requested backend cannot run this attention."""


class EngineError(RegardError):
    """An engine was requested that cannot run the model."""


class NotANumber(RegardError):
    """A NaN in the scores, with its position; only raised inside `debug()`."""


def shorten(text: str) -> str:
    """A text for a message, in quotes and at most 40 characters long."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


def list_names(names: Sequence[str]) -> str:
    """Names for a message, in quotes: each shortened, and not more than can be read."""
    listed = ", ".join(map(shorten, names[:MOST_LISTED]))
    return listed if len(names) <= MOST_LISTED else f"{listed} and {len(names) - MOST_LISTED} more"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The fix for an unknown name: the closest known name, or all of them."""
    known = sorted(known)
    close = get_close_matches(str(name)[:80], known, n=1)
    return f"did you mean {shorten(close[0])}?" if close else f"choose from {list_names(known)}"


def choose(registry: Mapping[str, T], name: str, kind: str) -> T:
    """Look up a registry entry; an unknown name raises with the closest known one."""
    if not isinstance(name, str) or name not in registry:
        raise UnknownName(f"unknown {kind} {name!r:.80}; {suggestion(name, registry)}")
    return registry[name]


def no_bundle(folder: object, reason: str | None = None, included: Iterable[str] = ()) -> str:
    """The message for a path without a valid bundle: the reason if the path exists.

    A plain name may be a misspelt name of one of the `included` models.
    """
    name = str(folder)
    what = f"no bundle at {name!r}" if reason is None else f"{name!r} is {reason}"
    fix = f"{what}; pass a folder written by `regard train`"
    included = tuple(included)
    if not included or "/" in name or "\\" in name:
        return fix
    return f"{fix}, or an included model: {suggestion(name, included)}"


def read_fix(error: OSError, otherwise: str) -> str:
    """The fix for a file that cannot be read: its permissions, or else the given one."""
    return "make it readable for this user" if isinstance(error, PermissionError) else otherwise


@contextmanager
def debug() -> Iterator[None]:
    """Check all attention scores inside this block and raise at the first NaN. Slow."""
    token = _debugging.set(True)
    try:
        yield
    finally:
        _debugging.reset(token)


def debugging() -> bool:
    """Whether a `debug()` block is active in this context."""
    return _debugging.get()
