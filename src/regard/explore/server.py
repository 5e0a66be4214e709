"""Server: the explorer on a port of this machine, until Ctrl-C."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import socket
import threading
import webbrowser
from types import FrameType

import uvicorn

from regard.errors import RegardError
from regard.explore.app import application
from regard.explore.guard import Guard
from regard.explore.models import Models

PORT = 7341
OWN = frozenset({"127.0.0.1", "localhost", "[::1]"})  # names that only this machine has


class Server(uvicorn.Server):
    """uvicorn's, but it ends at once: it writes nothing that could stay half-written, and nobody waits for a sum."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the process."""
        os._exit(0 if sig == signal.SIGINT else 128 + sig)


def serve(models: Models, *, host: str = "127.0.0.1", port: int | None = None, browser: bool = True) -> None:
    """Print the address, open it, and answer until Ctrl-C; beyond this machine only to who has the printed token."""
    listening, said = bound(host, port)
    number = listening.getsockname()[1]
    token = None if own(host) else secrets.token_urlsafe(24)
    name = f"[{host}]" if ":" in host else host
    guarded = Guard(application(models), hosts=OWN | {name}, port=number, token=token)
    address = f"http://{_reachable(name)}:{number}/" + (f"?token={token}" if token else "")
    config = uvicorn.Config(
        guarded,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
    )
    server = Server(config)
    signal.signal(signal.SIGINT, server.handle_exit)  # from now on; uvicorn does the same when it runs
    with listening:
        shown = ", ".join(model.name for model in models)
        print(f"{said}Regard shows {shown} at {address} (Ctrl-C ends it)", flush=True)
        threading.Thread(target=_warm, args=(models,), daemon=True).start()
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.run(sockets=[listening])


def bound(host: str, port: int | None) -> tuple[socket.socket, str]:
    """A socket that listens, and what is to be said of its port: without a wish, any free one will do."""
    if port is not None and not 0 <= port <= 65_535:
        raise RegardError(f"--port must be from 0 to 65535; got {port}")
    try:
        return _listening(host, PORT if port is None else port), ""
    except OSError as error:
        if port is None and not isinstance(error, socket.gaierror):
            try:
                return _listening(host, 0), f"Port {PORT} is taken, so another was chosen. "
            except OSError as again:
                error = again
        where = f"{host}:{PORT if port is None else port}"
        raise RegardError(f"cannot listen on {where}: {error.strerror}; choose another --port or --host") from None


def own(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    """Listening from now on: who connects before the server runs waits instead of being turned away."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening


def _reachable(name: str) -> str:
    """0.0.0.0 is every address of this machine, and none that a browser can open."""
    return socket.gethostname() if name in ("0.0.0.0", "[::]") else name


def _warm(models: Models) -> None:
    """Load torch and the first model while the person reads: the first trace then comes at once."""
    try:
        import regard.trace  # noqa: F401

        model = next(iter(models))
        with model.turn() as pipeline:
            pipeline(model.entry["example"])
    except RegardError:
        pass  # said to whoever asks for that model
