"""The ASGI application of the server: routes, access rules, errors, metrics and logs.

It is plain ASGI: a router and response classes would take longer than everything else here.
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.serve.access_rules import AccessRules
from regard.serve.http_errors import ErrorForm, failure, libretranslate_form, openai_form
from regard.serve.http_exchange import Exchange, Reply
from regard.serve.libretranslate import LibreTranslate
from regard.serve.serve_log import ServeLog
from regard.serve.serve_metrics import CONTENT_TYPE, ServeMetrics
from regard.serve.service import ModelInfo, Service
from regard.serve.text_endpoints import TextEndpoints
from regard.serve.web_pages import WebPages
from regard.web.access import ClientDisconnected, HttpError, Receive, Scope, Send
from regard.web.connections import CONNECTION
from regard.web.http_limits import HttpLimits

Handler = Callable[[Exchange], Awaitable[Reply]]
CLOSED = 499  # status in logs and metrics of a request whose client went away
MODELS = "/v1/models"


@dataclass(frozen=True)
class Endpoint:
    """What a path offers: a handler per method, the form of its errors, and who may use it."""

    name: str
    methods: Mapping[str, Handler]
    form: ErrorForm = openai_form
    public: bool = False  # needs no token
    invalid: int = 422  # status of an invalid request
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


class HttpApp:
    """The application: HTTP in front of a service."""

    def __init__(
        self,
        service: Service,
        rules: AccessRules,
        *,
        metrics: ServeMetrics,
        log: ServeLog,
        limits: HttpLimits | None = None,
    ) -> None:
        self.service = service
        self.rules = rules
        self.metrics = metrics
        self.log = log
        self.limits = limits or HttpLimits()
        self.pages = WebPages(token=rules.token is not None)
        self.endpoints = self._endpoints()
        self.unknown = Endpoint("other", {})

    def _endpoints(self) -> dict[str, Endpoint]:
        run, libre = (
            TextEndpoints(self.service, self.report),
            LibreTranslate(self.service, self.rules),
        )
        found = {
            "/v1/generate": Endpoint("/v1/generate", {"POST": run.generate}),
            "/v1/translations": Endpoint("/v1/translations", {"POST": run.translations}),
            "/translate": Endpoint(
                "/translate",
                {"POST": libre.translate},
                libretranslate_form,
                public=True,  # it checks the token itself, which may be in the body
                invalid=400,
            ),
            "/languages": Endpoint("/languages", {"GET": libre.languages}, libretranslate_form),
            MODELS: Endpoint(MODELS, {"GET": self._list_models}),
            "/v2/health/live": Endpoint("/v2/health/live", {"GET": self._live}, public=True),
            "/v2/health/ready": Endpoint("/v2/health/ready", {"GET": self._ready}, public=True),
            "/metrics": Endpoint("/metrics", {"GET": self._metrics}),
        }
        page = Endpoint("pages", {"GET": self.pages.page}, public=True, headers=self.pages.headers)
        self._model = Endpoint(f"{MODELS}/NAME", {"GET": self._show_model})
        self._reload = Endpoint(f"{MODELS}/NAME/reload", {"POST": self._reload_model})
        return found | dict.fromkeys(self.pages.paths, page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        start = time.perf_counter()
        exchange = Exchange(scope, receive, self.limits)
        endpoint = self._find(exchange)
        connection = scope.get("state", {}).get(CONNECTION)
        if connection is not None:
            connection.task = asyncio.current_task()
            exchange.is_complete = not connection.cycle.more_body
        try:
            reply = await self._answer(endpoint, exchange)
            await self._send(reply, endpoint, scope, send)
            status = reply.status
        except (ClientDisconnected, asyncio.CancelledError):
            if connection is None or connection in connection.connections:
                raise  # cancelled by the server, not by its client
            status = CLOSED
        finally:
            if connection is not None:
                connection.task = None
        seconds = time.perf_counter() - start
        self.metrics.observe(endpoint.name, status, seconds)
        self._log(exchange, status, seconds)

    def _find(self, exchange: Exchange) -> Endpoint:
        path = exchange.scope["path"]
        found = self.endpoints.get(path)
        if found is None and path.startswith(f"{MODELS}/"):
            exchange.name = path.removeprefix(f"{MODELS}/")
            found = self._model
            if exchange.name.endswith("/reload"):
                exchange.name = exchange.name.removesuffix("/reload")
                found = self._reload
        return found or self.unknown

    async def _answer(self, endpoint: Endpoint, exchange: Exchange) -> Reply:
        """The reply of an endpoint, or the error in its form."""
        scope = exchange.scope
        try:
            self.rules.check(scope, public=endpoint.public)
            method = scope["method"]
            handler = endpoint.methods.get("GET" if method == "HEAD" else method)
            if handler is None:
                return self._other_method(endpoint, scope)
            return await handler(exchange)
        except ClientDisconnected:
            raise
        except Exception as error:
            failed = failure(error)
            if failed.status == 500:
                self.report(error)
            status = endpoint.invalid if failed.status == 422 else failed.status
            return Reply(endpoint.form(failed), status=status, headers=failed.headers)

    def _other_method(self, endpoint: Endpoint, scope: Scope) -> Reply:
        path, allowed = scope["path"][:80], ", ".join(endpoint.methods)
        if not endpoint.methods:
            raise HttpError(404, "not-found", f"no path {path!r}; the paths are at /docs")
        if scope["method"] == "OPTIONS":
            headers = {"allow": f"{allowed}, OPTIONS", **self.rules.preflight_headers(scope)}
            return Reply(b"", status=204, headers=headers)
        message = f"{path} does not take {scope['method'][:20]}; send {allowed}"
        raise HttpError(405, "wrong-method", message, {"allow": allowed})

    async def _send(self, reply: Reply, endpoint: Endpoint, scope: Scope, send: Send) -> None:
        headers = [(b"content-type", reply.kind.encode()), *(endpoint.headers or PLAIN_HEADERS)]
        added = {**self.rules.cors_headers(scope), **reply.headers} if self.rules.origins else None
        for name, value in (added or reply.headers).items():
            headers.append((name.encode(), value.encode("latin-1", "replace")))
        if reply.parts is None:
            if reply.status != 204:
                headers.append((b"content-length", b"%d" % len(reply.body)))
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})
            return
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        async for part in reply.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _log(self, exchange: Exchange, status: int, seconds: float) -> None:
        scope = exchange.scope
        client = scope.get("client")
        facts: dict[str, Any] = {
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
        }
        facts["ms"] = round(seconds * 1000, 2)
        facts["client"] = client[0] if client else None
        if exchange.model:
            facts["model"] = exchange.model
            facts["texts"] = exchange.texts
            facts["characters"] = exchange.characters
            if self.log.texts:
                facts["content"] = exchange.content
        self.log.write("request", **facts)

    def report(self, error: BaseException) -> None:
        """Log an unexpected error with its traceback."""
        self.log.write("bug", error=repr(error), traceback=traceback.format_exception(error))

    async def _list_models(self, exchange: Exchange) -> Reply:
        data = [_describe(model) for model in self.service.models.values()]
        return Reply(json.dumps({"object": "list", "data": data}).encode())

    async def _show_model(self, exchange: Exchange) -> Reply:
        return Reply(json.dumps(_describe(self._named(exchange))).encode())

    async def _reload_model(self, exchange: Exchange) -> Reply:
        if self.rules.token is None:
            message = "reloading by HTTP needs --token-file; send SIGHUP to the server instead"
            raise HttpError(403, "no-token", message)
        model = self._named(exchange)
        await exchange.body()
        await self.service.reload(model.name)
        return Reply(json.dumps(_describe(self.service.models[model.name])).encode())

    def _named(self, exchange: Exchange) -> ModelInfo:
        if exchange.name not in self.service.models:
            known = ", ".join(self.service.models) or "none"
            message = f"no model {exchange.name[:80]!r}; served are: {known}"
            raise HttpError(404, "unknown-model", message)
        return self.service.models[exchange.name]

    async def _live(self, exchange: Exchange) -> Reply:
        return Reply(b'{"live":true}')

    async def _ready(self, exchange: Exchange) -> Reply:
        ready = self.service.ready
        return Reply(
            b'{"ready":%b}' % (b"true" if ready else b"false"), status=200 if ready else 503
        )

    async def _metrics(self, exchange: Exchange) -> Reply:
        return Reply(self.metrics.expose(self.service), CONTENT_TYPE)


PLAIN_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


def _describe(model: ModelInfo) -> dict[str, object]:
    """A model in the form of OpenAI's API, with more facts."""
    title = {"title": model.card["title"]} if "title" in model.card else {}
    return {
        "id": model.name,
        "object": "model",
        "created": int(model.loaded),
        "owned_by": "regard",
        **title,
        "fingerprint": model.fingerprint,
        "engine": model.engine,
        "device": model.device,
        "languages": list(model.languages),
        "example": model.card.get("example", ""),
    }
