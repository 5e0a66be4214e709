"""Limits of HTTP connections and requests; a light module, which the command line imports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HttpLimits:
    """What the HTTP server accepts from a connection."""

    body_bytes: int = 8 * 1024 * 1024
    """Bytes that the body of a request may have."""

    connections: int = 4_096
    """Connections that may be open at a time; more are closed with status 429."""

    header_bytes: int = 64 * 1024
    """Bytes that the headers of a request may have."""

    idle_seconds: float = 30.0
    """Seconds until an idle connection, an unfinished request or an unread response is closed."""
