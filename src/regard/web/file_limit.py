"""The limit of open files, which bounds connections."""

from __future__ import annotations

import contextlib

RESERVE = 256  # files for models, workers, logs and refused connections


def connections_within_files(wanted: int) -> int:
    """As many of the wanted connections as open files allow; raises the process's own limit."""
    try:
        import resource
    except ImportError:  # Windows: no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVE
    if resource.RLIM_INFINITY != soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit than it tells
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - RESERVE))
