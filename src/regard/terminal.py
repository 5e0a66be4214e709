"""Terminal output: formatted numbers, no control characters, no errors from broken pipes."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Protocol, runtime_checkable

JOINERS = "\u200c\u200d"  # zero-width, but part of the spelling of some languages


@runtime_checkable
class TextStream(Protocol):
    """A writable text stream: standard output, standard error or a file."""

    def write(self, text: str, /) -> Any: ...
    def flush(self) -> Any: ...
    def isatty(self) -> bool: ...
    def fileno(self) -> int: ...


def format_number(value: Any) -> str:
    """A number with thousands separators, and two decimals for floats; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def format_duration(seconds: float) -> str:
    """A duration in at most two units, such as "2 h 05 min"."""
    whole = max(0, round(seconds)) if seconds < float("inf") else 0
    hours = whole // 3600
    minutes, rest = whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def sanitize(text: str) -> str:
    """Replace unprintable characters by �: text must not move the cursor or change colours."""
    replacement = "\N{REPLACEMENT CHARACTER}"
    return "".join(c if c.isprintable() or c in JOINERS else replacement for c in text)


def write_lines(stream: TextStream, *lines: str) -> None:
    """Write sanitized lines and flush; characters that the encoding lacks become question marks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for line in lines:
        stream.write(sanitize(line).encode(encoding, "replace").decode(encoding) + "\n")
    stream.flush()


def prepare_streams() -> None:
    """Make the standard streams usable: open closed ones on the null device (a daemon has none),
    and let standard output replace characters that its encoding lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open until the process ends)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def flush_or_discard(stream: TextStream) -> None:
    """Flush buffered output; discard it if the stream is closed."""
    try:
        stream.flush()
    except (OSError, ValueError):
        redirect_to_null(stream)


def redirect_to_null(stream: TextStream) -> None:
    """Redirect a closed pipe to the null device; otherwise later prints and the interpreter's final
    flush would fail."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return
