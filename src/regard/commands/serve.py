"""`regard serve`: an HTTP server for models, on this machine or, with a token, beyond it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import RegardError
from regard.model_location import find_model
from regard.serve.access_rules import AccessRules, checked_origin, read_token
from regard.serve.http_app import HttpApp
from regard.serve.http_server import ServerProcess
from regard.serve.serve_log import AllEvents, ServeLog
from regard.serve.serve_metrics import ServeMetrics
from regard.serve.service import ModelSpec, Service, ServiceLimits
from regard.web.access import LOCAL_NAMES, host_headers
from regard.web.http_limits import HttpLimits
from regard.web.listener import bracketed, is_local, open_socket, reachable_name

PORT = 7342
NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})=(.+)")


@dataclass(frozen=True)
class ServeJob:
    """The options of `regard serve`."""

    bundles: Sequence[str]
    host: str
    port: int | None
    workers: int | None
    int8: bool
    engine: str
    device: str
    token_file: Path | None
    allow_host: Sequence[str]
    allow_origin: Sequence[str]
    log: Path | None
    log_text: bool
    limits: ServiceLimits
    http_limits: HttpLimits


def serve(job: ServeJob) -> int:
    """Serve until a signal arrives; returns the exit status."""
    check_limits(job.limits, job.http_limits)
    token = _token(job)
    specs = model_specs(job.bundles, int8=job.int8, engine=job.engine)
    listener, note = open_socket(job.host, job.port, PORT)
    with listener:
        port = listener.getsockname()[1]
        log, metrics = ServeLog(_descriptor(job.log), texts=job.log_text), ServeMetrics()
        service = Service(
            specs,
            workers=job.workers,
            limits=job.limits,
            events=AllEvents(metrics, log),
            device=job.device,
        )
        rules = _rules(job, port, token)
        app = HttpApp(service, rules, metrics=metrics, log=log, limits=job.http_limits)
        address = f"http://{reachable_name(bracketed(job.host))}:{port}/"

        def announce() -> None:
            names = ", ".join(spec.name for spec in specs)
            _say(f"{note}Regard serves {names} at {address} (Ctrl-C to stop)")

        try:
            return ServerProcess(app, listener).run(announce)
        finally:
            log.close()


def model_specs(
    bundles: Sequence[str], *, int8: bool = False, engine: str = "auto"
) -> list[ModelSpec]:
    """The models to serve: BUNDLE or NAME=BUNDLE, each with a name of its own."""
    found: dict[str, ModelSpec] = {}
    for text in bundles:
        named = None if os.path.lexists(text) else NAMED.fullmatch(text)
        path = find_model(named[2] if named else text)
        name = named[1] if named else _default_name(text)
        if name in found:
            fix = f"name them, such as one={found[name].folder} two={path}"
            raise RegardError(f"two models are named {name!r}; {fix}")
        found[name] = ModelSpec(name, path, int8, engine)
    return list(found.values())


def _default_name(text: str) -> str:
    """The name of the folder or archive; `bundle` inside a run is named after the run."""
    path = Path(text.removeprefix("hf:")).absolute()
    name = path.parent.name if path.name == "bundle" else path.name.removesuffix(".zip")
    return re.sub("[^A-Za-z0-9._-]", "_", name) or "model"


def check_limits(limits: ServiceLimits, http_limits: HttpLimits) -> None:
    """Raise if a limit is not positive."""
    for group in (limits, http_limits):
        for name, value in vars(group).items():
            if not value > (-1 if name == "batch_wait" else 0):
                option = name.replace("_", "-")
                raise RegardError(f"--{option} must be above 0; got {value}")


def _token(job: ServeJob) -> str | None:
    if job.token_file is not None:
        return read_token(job.token_file)
    if not is_local(job.host):
        fix = "add --token-file FILE, a file with a secret that clients send"
        raise RegardError(f"--host {job.host} can be reached by other machines; {fix}")
    return None


def _rules(job: ServeJob, port: int, token: str | None) -> AccessRules:
    """On this machine, only its own names are served; beyond it, the token protects."""
    names = LOCAL_NAMES | {bracketed(job.host).lower()}
    hosts = host_headers(names, port) | {host.lower() for host in job.allow_host}
    return AccessRules(
        hosts=hosts if is_local(job.host) else None,
        port=port,
        token=token,
        origins=frozenset(checked_origin(origin) for origin in job.allow_origin),
    )


def _descriptor(log: Path | None) -> int:
    """The file of the log, or standard error."""
    if log is None:
        return 2
    try:
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise RegardError(f"cannot write --log {str(log)!r}: {error.strerror}") from None


def _say(line: str) -> None:
    """Print a line; a closed standard output does not stop the server."""
    try:
        print(line, flush=True)
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (open until the process ends)
