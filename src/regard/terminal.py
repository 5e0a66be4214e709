"""What people read on a terminal: numbers and times in their words, nothing that could move a cursor."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Protocol, runtime_checkable

JOINERS = "\u200c\u200d"  # invisible, yet part of how words are written


@runtime_checkable
class Stream(Protocol):
    """Where text can be shown: standard output or error, or a file."""

    def write(self, text: str, /) -> Any: ...
    def flush(self) -> Any: ...
    def isatty(self) -> bool: ...
    def fileno(self) -> int: ...


def figure(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def duration(seconds: float) -> str:
    """Seconds as people say them, in two units at most."""
    whole = max(0, round(seconds)) if seconds < float("inf") else 0
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def clean(text: str) -> str:
    """Text that cannot move a cursor or change a colour: what is not printable becomes �."""
    return "".join(c if c.isprintable() or c in JOINERS else "\N{REPLACEMENT CHARACTER}" for c in text)


def tell(file: Stream, *lines: str) -> None:
    """Write lines, clean, in letters that it can show, and at once."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    for line in lines:
        file.write(clean(line).encode(encoding, "replace").decode(encoding) + "\n")
    file.flush()


def ready() -> None:
    """Standard streams that can be used: nowhere for one that is closed (as daemons have them), and a letter that the
    output cannot show becomes a question mark."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (it stays open, as they all do)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def hand_over(file: Stream) -> None:
    """Write out what is still held for it; nowhere, if it takes no more."""
    try:
        file.flush()
    except (OSError, ValueError):
        drain(file)


def drain(file: Stream) -> None:
    """Send what goes to a closed pipe nowhere, or the next to print there, and the interpreter at its exit, fails."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return
