"""The explorer's server: listens on a port of this machine until Ctrl-C."""

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
from regard.explore.app import create_app
from regard.explore.guard import Guard
from regard.explore.model_store import ModelStore

PORT = 7341
LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})  # names of this machine only


class ExplorerServer(uvicorn.Server):
    """A uvicorn server that exits at once: it has no files to finish and nothing to drain."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Exit the process."""
        os._exit(0 if sig == signal.SIGINT else 128 + sig)


def serve(
    models: ModelStore, *, host: str = "127.0.0.1", port: int | None = None, browser: bool = True
) -> None:
    """Print the address, open it in a browser and serve until Ctrl-C.

    Beyond this machine the printed token is required."""
    listener, note = open_socket(host, port)
    number = listener.getsockname()[1]
    token = None if is_local(host) else secrets.token_urlsafe(24)
    name = f"[{host}]" if ":" in host else host
    guarded = Guard(create_app(models), hosts=LOCAL_NAMES | {name}, port=number, token=token)
    address = f"http://{_reachable_name(name)}:{number}/" + (f"?token={token}" if token else "")
    config = uvicorn.Config(
        guarded,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
    )
    server = ExplorerServer(config)
    signal.signal(signal.SIGINT, server.handle_exit)  # uvicorn does the same once it runs
    with listener:
        names = ", ".join(model.name for model in models)
        print(f"{note}Regard serves {names} at {address} (Ctrl-C to stop)", flush=True)
        threading.Thread(target=_preload, args=(models,), daemon=True).start()
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.run(sockets=[listener])


def open_socket(host: str, port: int | None) -> tuple[socket.socket, str]:
    """A listening socket and a note for the user; if the default port is taken, any free one."""
    if port is not None and not 0 <= port <= 65_535:
        raise RegardError(f"--port must be from 0 to 65535; got {port}")
    try:
        return _listen(host, PORT if port is None else port), ""
    except OSError as error:
        if port is None and not isinstance(error, socket.gaierror):
            try:
                return _listen(host, 0), f"Port {PORT} is in use; using another one. "
            except OSError as second:
                error = second
        where = f"{host}:{PORT if port is None else port}"
        message = f"cannot listen on {where}: {error.strerror}; choose another --port or --host"
        raise RegardError(message) from None


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def _reachable_name(name: str) -> str:
    """A name that a browser can open: 0.0.0.0 means every address of this machine."""
    return socket.gethostname() if name in ("0.0.0.0", "[::]") else name


def _preload(models: ModelStore) -> None:
    """Load torch and the first model in the background, so that the first trace is fast."""
    try:
        import regard.trace  # noqa: F401

        model = next(iter(models))
        with model.exclusive() as pipeline:
            pipeline(model.entry["example"])
    except RegardError:
        pass  # reported when the model is requested
