"""The HTTP server of `regard serve` with a constant response: what the HTTP stack costs alone.

python benchmarks/serving_constant.py --port 0        # used by benchmarks/serving.py
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from regard.serve.access_rules import AccessRules
from regard.serve.http_app import HttpApp
from regard.serve.http_server import ServerProcess
from regard.serve.serve_log import ServeLog
from regard.serve.serve_metrics import ServeMetrics
from regard.serve.service import ModelInfo, ServiceLimits
from regard.web.access import LOCAL_NAMES, host_headers
from regard.web.listener import open_socket

ANSWER = (
    b'[{"text":"AH T EH N SH AH N","tokens":["AH","T","EH","N","SH","AH","N"],'
    b'"logps":[-0.1,-0.1,-0.1,-0.1,-0.1,-0.1,-0.1,-0.1],"logp":-0.8,"score":-0.8,'
    b'"confidence":0.449329,"unknown":[]}]'
)


class ConstantService:
    """Answers every text at once with the same bytes."""

    limits, ready = ServiceLimits(), True
    models: Mapping[str, ModelInfo] = {"constant": ModelInfo("constant", "", 0.0, "none", "none")}
    waiting: Mapping[str, int] = {}
    worker_pids: Mapping[str, list[int]] = {}

    async def start(self) -> None:
        """Nothing is loaded."""

    async def generate_json(
        self, model: str, texts: Sequence[str], options: Mapping[str, Any], **others: Any
    ) -> list[bytes]:
        """The constant answer to each text."""
        return [ANSWER] * len(texts)

    async def drain(self) -> None:
        """Nothing is in progress."""


def main() -> None:
    """Serve until a signal arrives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    listener, _ = open_socket("127.0.0.1", parser.parse_args().port, 0)
    port = listener.getsockname()[1]
    rules = AccessRules(hosts=host_headers(LOCAL_NAMES, port), port=port)
    service: Any = ConstantService()
    app = HttpApp(service, rules, metrics=ServeMetrics(), log=ServeLog(2))
    with listener:
        line = f"a constant response at http://127.0.0.1:{port}/"
        raise SystemExit(ServerProcess(app, listener).run(lambda: print(line, flush=True)))


if __name__ == "__main__":
    main()
