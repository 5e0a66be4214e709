"""The command `regard serve` and its options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from regard import cli_options as options
from regard.serve.service_types import ServiceLimits
from regard.web.http_limits import HttpLimits

LIMITS = Group.create_ordered("Limits")
ServedBundles = Annotated[
    str, Parameter(help="Models: BUNDLE or NAME=BUNDLE (default: spelling, an included model).")
]
ServePort = Annotated[
    int | None, Parameter(help="Port (default: 7342, or a free one if it is taken).")
]
ServeHost = Annotated[
    str, Parameter(help="Address. Any other than this machine's needs --token-file.")
]
TokenFile = Annotated[
    Path | None, Parameter(help="File with the token that every request must carry.")
]
Workers = Annotated[
    int | None, Parameter(help="Worker processes per model on a CPU (default: one per core).")
]
Int8 = Annotated[bool, Parameter(name="--int8", help="Run all models in int8.")]
AllowHost = Annotated[
    list[str] | None,
    Parameter(help="Host header to accept, such as that of a proxy (repeatable)."),
]
AllowOrigin = Annotated[
    list[str] | None,
    Parameter(help="Origin of web pages that may use the server, or * (repeatable)."),
]
LogFile = Annotated[
    Path | None, Parameter(name="--log", help="File of the log (default: standard error).")
]
LogText = Annotated[bool, Parameter(help="Also log the texts of requests.")]
Limits = Annotated[ServiceLimits | None, Parameter(name="*", group=LIMITS)]
ConnectionLimits = Annotated[HttpLimits | None, Parameter(name="*", group=LIMITS)]


def serve(
    *bundles: ServedBundles,
    port: ServePort = None,
    host: ServeHost = "127.0.0.1",
    token_file: TokenFile = None,
    workers: Workers = None,
    int8: Int8 = False,
    engine: options.Engine = "auto",
    device: options.Device = "auto",
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    log: LogFile = None,
    log_text: LogText = False,
    limits: Limits = None,
    connection_limits: ConnectionLimits = None,
) -> None:
    """Serve models over HTTP: `regard serve spelling`, then open the printed address.

    POST /v1/generate answers texts: curl http://127.0.0.1:7342/v1/generate
    -H 'content-type: application/json' -d '{"input": "attention"}'. LibreTranslate's /translate
    and OpenAI's /v1/translations work, too. /docs shows all paths, /metrics serves Prometheus.

    Requests are batched, outputs do not depend on the batch. SIGTERM answers what was accepted and
    exits; SIGHUP loads all models again. docs/serving.md has more.
    """
    from regard.commands.serve import ServeJob
    from regard.commands.serve import serve as run

    job = ServeJob(
        bundles=bundles or ("spelling",),
        host=host,
        port=port,
        workers=workers,
        int8=int8,
        engine=engine,
        device=device,
        token_file=token_file,
        allow_host=allow_host or [],
        allow_origin=allow_origin or [],
        log=log,
        log_text=log_text,
        limits=limits or ServiceLimits(),
        http_limits=connection_limits or HttpLimits(),
    )
    sys.exit(run(job))


COMMANDS = {serve: 7}
