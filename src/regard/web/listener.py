"""Listening sockets: the address a server binds, and whether others can reach it."""

from __future__ import annotations

import ipaddress
import socket

from regard.errors import RegardError


def open_socket(host: str, port: int | None, default: int) -> tuple[socket.socket, str]:
    """A listening socket and a note for the user; if the default port is taken, any free one."""
    if port is not None and not 0 <= port <= 65_535:
        raise RegardError(f"--port must be from 0 to 65535; got {port}")
    try:
        return _listen(host, default if port is None else port), ""
    except OSError as error:
        if port is None and not isinstance(error, socket.gaierror):
            try:
                return _listen(host, 0), f"Port {default} is in use; using another one. "
            except OSError as second:
                error = second
        where = f"{host}:{default if port is None else port}"
        message = f"cannot listen on {where}: {error.strerror}; choose another --port or --host"
        raise RegardError(message) from None


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bracketed(host: str) -> str:
    """A host as it appears in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def reachable_name(name: str) -> str:
    """A name that a browser can open: 0.0.0.0 means every address of this machine."""
    return socket.gethostname() if name in ("0.0.0.0", "[::]") else name


def _listen(host: str, port: int) -> socket.socket:
    """Listen at once: clients that connect before the server runs wait instead of failing."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener
