"""App: the routes of the explorer. Each reads its request, asks the part that knows, and sends what it says.

What needs torch is imported when a route is first used: the page and the list of models are there at once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from regard import __version__
from regard.errors import RegardError
from regard.explore import STATIC
from regard.explore.models import Models
from regard.explore.numbers import dumps
from regard.explore.refusals import Refusal, invalid
from regard.explore.requests import BEAM, Ask, Sweep, Tokenise, in_a_line
from regard.explore.traces import Traces

CODES = {404: "not-found", 405: "wrong-method"}
Side = Literal["source", "target"]
Format = Literal["safetensors", "npz", "json", "csv", "html", "python"]
Names = Annotated[list[str], Query()]
Count = Annotated[int, Query(ge=1, le=1_000)]
Width = Annotated[int, Query(ge=1, le=BEAM)]


def application(models: Models, traces: Traces | None = None, *, static: Path = STATIC) -> FastAPI:
    """The server without its guard."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    kept = Traces(models) if traces is None else traces
    _errors(app)
    _about(app, models)
    _tracing(app, models, kept)
    _views(app, kept)
    _files(app, kept, static)
    if static.is_dir():
        app.mount("/", StaticFiles(directory=static, html=True))
    return app


def _about(app: FastAPI, models: Models) -> None:
    @app.get("/healthz")
    async def alive() -> Response:
        return _json({"ok": True, "version": __version__})

    @app.get("/api/models")
    def offered() -> Response:
        return _json({"models": [model.entry for model in models]})

    @app.get("/api/models/{id}/graph")
    def graph(id: str) -> Response:
        from regard.explore.graph import graph

        return _json(graph(models[id]))

    @app.get("/api/palette")
    def palette() -> Response:
        from regard.plots.palette import as_json

        return Response(as_json(), media_type="application/json")


def _tracing(app: FastAPI, models: Models, traces: Traces) -> None:
    @app.post("/api/tokenize")
    def tokenise(asked: Tokenise) -> Response:
        from regard.explore.describe import tokenised

        return _json(tokenised(models[asked.model].ready.bundle, asked))

    @app.post("/api/trace")
    def trace(asked: Ask) -> Response:
        from regard.explore.describe import described

        return _json(described(traces.ask(asked)))

    @app.post("/api/sweep")
    def sweep(asked: Sweep) -> Response:
        from regard.explore.sweep import sweep

        return _json(sweep(models, traces, asked))


def _views(app: FastAPI, traces: Traces) -> None:
    @app.get("/api/trace/{id}/explain")
    def explain(id: str, tensor: str, index: str = "") -> Response:
        held = traces[id]
        held.tensor(tensor)  # it must be there
        return _json(held.trace.explain(tensor, _index(index)).as_dict())

    @app.get("/api/trace/{id}/neighbours")
    def neighbours(id: str, side: Side, position: int, n: Count = 10) -> Response:
        from regard.explore.space import neighbours

        return _json(neighbours(traces[id], side, position, n))

    @app.get("/api/trace/{id}/space")
    def space(id: str, side: Side) -> Response:
        from regard.explore.space import space

        return _json(space(traces[id], side))

    @app.get("/api/trace/{id}/output")
    def output(id: str, row: int, n: Count = 20, word: str | None = None) -> Response:
        from regard.explore.output import output

        return _json(output(traces[id], row, n, word))

    @app.get("/api/trace/{id}/alignment")
    def alignment(id: str, attention: str = "mean", head: int | None = None) -> Response:
        from regard.explore.attended import alignment

        return _json(alignment(traces[id], attention, head))

    @app.get("/api/trace/{id}/walk")
    def walk(id: str, side: Side, position: int) -> Response:
        from regard.explore.walk import walk

        return _json(walk(traces[id], side, position))

    @app.get("/api/trace/{id}/beam")
    def beam(id: str, width: Width = 4) -> Response:
        from regard.explore.decoded import beams

        return _json(beams(traces[id], width))

    @app.get("/api/trace/{id}/causes")
    def causes(id: str) -> Response:
        from regard.explore.caused import caused

        return _json(caused(traces[id]))

    @app.get("/api/trace/{id}/wall")
    def wall(id: str) -> Response:
        from regard.explore.attended import wall

        return _json(wall(traces[id]))


def _files(app: FastAPI, traces: Traces, static: Path) -> None:
    @app.get("/api/trace/{id}/tensors")
    def some(id: str, name: Names) -> Response:
        from regard.explore.export import tensors

        return Response(tensors(traces[id], name), media_type="application/octet-stream")

    @app.get("/api/trace/{id}/export")
    def export(id: str, format: Format, name: Names = [], hash: str = "") -> Response:  # noqa: B006
        from regard.explore.export import exported

        held = traces[id]
        file = exported(held, format, name, hash, static)
        called = f"{re.sub('[^A-Za-z0-9_-]', '_', held.model.name)}-{held.id}.{file.suffix}"
        headers = {"content-disposition": f'attachment; filename="{called}"'}
        return Response(file.content, media_type=file.media, headers=headers)


def _errors(app: FastAPI) -> None:
    """Everything that goes wrong is said in one shape."""

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        code, message = in_a_line(error.errors())
        return _said(invalid(message, code))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:  # what no parser of JSON would take
            return _said(
                invalid("the body is no JSON that can be read; send less deep and shorter numbers", "wrong-json")
            )
        code = CODES.get(error.status_code, "refused")
        message = f"{request.method} {request.url.path[:80]}: {str(error.detail).lower()}"
        return _said(Refusal(error.status_code, code, message, dict(error.headers or {})))

    @app.exception_handler(RegardError)
    async def refused(_: Request, error: RegardError) -> Response:
        return _said(error if isinstance(error, Refusal) else invalid(str(error)))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:  # it is raised again and logged by the server
        what = f"{type(error).__name__} in the server, which is a fault of its own; its terminal shows more"
        return _said(Refusal(500, "failed", what))


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dumps(content), status, headers, "application/json")


def _said(refusal: Refusal) -> Response:
    return _json(refusal.content(), refusal.status, refusal.headers)


def _index(text: str) -> tuple[int, ...]:
    """1,2,3 as a place; an empty text is the place of a single number."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise invalid(f"an index is whole numbers between commas, such as 0,2,1; got {text[:80]!r}") from None
