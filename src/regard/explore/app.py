"""The routes of the explorer: each parses its request, calls one function and returns JSON.

Modules that need torch are imported when a route is first used, so that the page and the list of
models are available at once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from regard import __version__
from regard.errors import RegardError
from regard.explore import STATIC
from regard.explore.messages import MAX_BEAM, HeadAblationRequest, TokenizeRequest, TraceRequest
from regard.explore.model_store import ModelStore
from regard.explore.static_files import CompressedFiles
from regard.explore.trace_store import TraceStore
from regard.explore.view_routes import add_view_routes
from regard.web.access import HttpError
from regard.web.json_messages import invalid, to_json, validation_error

CODES = {404: "not-found", 405: "wrong-method"}
Side = Literal["source", "target"]
Format = Literal["safetensors", "npz", "json", "csv", "html", "python"]
Names = Annotated[list[str], Query()]
Count = Annotated[int, Query(ge=1, le=1_000)]
BeamSize = Annotated[int, Query(ge=1, le=MAX_BEAM)]
Megabytes = Annotated[float | None, Query(ge=0, le=10_000)]


def create_app(
    models: ModelStore, traces: TraceStore | None = None, *, static: Path = STATIC
) -> FastAPI:
    """The explorer's application, without its guard."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    store = TraceStore(models) if traces is None else traces
    _add_error_handlers(app)
    _add_model_routes(app, models)
    _add_computations(app, models, store)
    _add_explanations(app, store)
    _add_embedding_and_output_views(app, store)
    _add_attention_and_search_views(app, store)
    add_view_routes(app, store)
    _add_files(app, store, static)
    if static.is_dir():
        app.mount("/", CompressedFiles(directory=static, html=True))
    return app


def _add_model_routes(app: FastAPI, models: ModelStore) -> None:
    @app.get("/healthz")
    async def health() -> Response:
        return _json({"ok": True, "version": __version__})

    @app.get("/api/models")
    def list_models() -> Response:
        return _json({"models": [model.entry for model in models]})

    @app.get("/api/models/{id}/graph")
    def model_graph(id: str) -> Response:
        from regard.explore.trace_json import model_graph

        return _json(model_graph(models[id]))

    @app.get("/api/models/{id}/film")
    def film(id: str) -> Response:
        return _json(models[id].film.describe())

    @app.get("/api/models/{id}/film/markers")
    def film_markers(id: str) -> Response:
        return _json({"markers": models[id].film.markers()})

    @app.get("/api/palette")
    def palette() -> Response:
        from regard.plots.palette import as_json

        return Response(as_json(), media_type="application/json")


def _add_computations(app: FastAPI, models: ModelStore, traces: TraceStore) -> None:
    @app.post("/api/tokenize")
    def tokenize(request: TokenizeRequest) -> Response:
        from regard.explore.trace_json import tokenize

        return _json(tokenize(models[request.model].loaded_pipeline.bundle, request))

    @app.post("/api/trace")
    def trace(request: TraceRequest) -> Response:
        from regard.explore.trace_json import describe

        return _json(describe(traces.compute(request)))

    @app.post("/api/head-ablation")
    def head_ablation(request: HeadAblationRequest) -> Response:
        from regard.explore.head_ablation import ablate_heads

        return _json(ablate_heads(traces, request))


def _add_explanations(app: FastAPI, traces: TraceStore) -> None:
    @app.get("/api/trace/{id}/explain")
    def explain(id: str, tensor: str, index: str = "") -> Response:
        stored = traces[id]
        stored.tensor(tensor)  # raises if there is none
        return _json(stored.trace.explain(tensor, _parse_index(index)).as_dict())

    @app.get("/api/trace/{id}/explain-cosine")
    def explain_cosine(id: str, side: Side, first: int, second: int) -> Response:
        from regard.trace.derived import embedding_cosine

        return _json(embedding_cosine(traces[id].trace, side, first, second).as_dict())

    @app.get("/api/trace/{id}/explain-pca")
    def explain_pca(id: str, side: Side, token: int, axis: int) -> Response:
        from regard.trace.derived import pca_coordinate

        return _json(pca_coordinate(traces[id].trace, side, token, axis).as_dict())

    @app.get("/api/trace/{id}/explain-lens")
    def explain_lens(id: str, tensor: str, row: int, token: int) -> Response:
        from regard.trace.derived import lens_probability

        stored = traces[id]
        if not 0 <= row < len(stored.trace.target):
            raise invalid(f"row {row} does not exist", "out-of-range")
        return _json(lens_probability(stored.trace, tensor, row, token).as_dict())

    @app.get("/api/trace/{id}/explain-lens-rank")
    def explain_lens_rank(id: str, tensor: str, row: int, token: int) -> Response:
        from regard.trace.derived import lens_rank

        return _json(lens_rank(traces[id].trace, tensor, row, token).as_dict())

    @app.get("/api/trace/{id}/weight-table")
    def weight_table(id: str, name: str, index: str = "") -> Response:
        from regard.explore.weight_table import weight_table

        return _json(weight_table(traces[id], name, _parse_index(index)))


def _add_embedding_and_output_views(app: FastAPI, traces: TraceStore) -> None:
    @app.get("/api/trace/{id}/neighbours")
    def neighbours(id: str, side: Side, position: int, n: Count = 10) -> Response:
        from regard.explore.analysis_views import neighbours

        return _json(neighbours(traces[id], side, position, n))

    @app.get("/api/trace/{id}/embedding-space")
    def embedding_space(id: str, side: Side) -> Response:
        from regard.explore.analysis_views import embedding_plane

        return _json(embedding_plane(traces[id], side))

    @app.get("/api/trace/{id}/output")
    def output(id: str, row: int, n: Count = 20, word: str | None = None) -> Response:
        from regard.explore.analysis_views import output

        return _json(output(traces[id], row, n, word))

    @app.get("/api/trace/{id}/residual-stream")
    def residual_stream(id: str, side: Side, position: int) -> Response:
        from regard.explore.analysis_views import residual_stream

        return _json(residual_stream(traces[id], side, position))


def _add_attention_and_search_views(app: FastAPI, traces: TraceStore) -> None:
    @app.get("/api/trace/{id}/heads")
    def heads(id: str) -> Response:
        from regard.explore.head_views import head_statistics

        return _json(head_statistics(traces[id]))

    @app.get("/api/trace/{id}/alignment")
    def alignment(id: str, attention: str = "mean", head: int | None = None) -> Response:
        from regard.explore.analysis_views import alignment

        return _json(alignment(traces[id], attention, head))

    @app.get("/api/trace/{id}/occlusion")
    def occlusion(id: str) -> Response:
        from regard.explore.analysis_views import occlusion

        return _json(occlusion(traces[id]))

    @app.get("/api/trace/{id}/beam-tree")
    def beam_tree(id: str, beam: BeamSize = 4) -> Response:
        from regard.explore.analysis_views import beam_tree

        return _json(beam_tree(traces[id], beam))


def _add_files(app: FastAPI, traces: TraceStore, static: Path) -> None:
    @app.get("/api/trace/{id}/tensors")
    def tensors(id: str, name: Names) -> Response:
        from regard.explore.export import tensor_file

        return Response(tensor_file(traces[id], name), media_type="application/octet-stream")

    @app.get("/api/trace/{id}/export")
    def export(
        id: str,
        format: Format,
        name: Names = [],  # noqa: B006
        hash: str = "",
        weights_mb: Megabytes = None,
    ) -> Response:
        from regard.explore.export import export_trace

        stored = traces[id]
        file = export_trace(stored, format, name, hash, static, weights_mb)
        stem = re.sub("[^A-Za-z0-9_-]", "_", stored.model.name)
        filename = f"{stem}-{stored.id}.{file.suffix}"
        headers = {"content-disposition": f'attachment; filename="{filename}"'}
        return Response(file.content, media_type=file.media_type, headers=headers)


def _add_error_handlers(app: FastAPI) -> None:
    """All errors have the same form: a code for programs and a line for people."""

    @app.exception_handler(RequestValidationError)
    async def handle_validation(_: Request, error: RequestValidationError) -> Response:
        return _error(validation_error(error.errors()))

    @app.exception_handler(HTTPException)
    async def handle_http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:  # the JSON parser gave up
            message = "the body is not readable JSON; send less nesting and shorter numbers"
            return _error(invalid(message, "wrong-json"))
        code = CODES.get(error.status_code, "refused")
        message = f"{request.method} {request.url.path[:80]}: {str(error.detail).lower()}"
        return _error(HttpError(error.status_code, code, message, dict(error.headers or {})))

    @app.exception_handler(RegardError)
    async def handle_user_error(_: Request, error: RegardError) -> Response:
        return _error(error if isinstance(error, HttpError) else invalid(str(error)))

    @app.exception_handler(Exception)
    async def handle_bug(_: Request, error: Exception) -> Response:  # the server logs it as well
        message = f"{type(error).__name__} in the server: this is a bug; see the server's terminal"
        return _error(HttpError(500, "failed", message))


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, "application/json")


def _error(error: HttpError) -> Response:
    return _json(error.content(), error.status, error.headers)


def _parse_index(text: str) -> tuple[int, ...]:
    """The index 1,2,3; an empty text is the index of a scalar."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        message = f"index must be integers separated by commas, such as 0,2,1; got {text[:80]!r}"
        raise invalid(message) from None
